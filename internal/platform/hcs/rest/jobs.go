package rest

import (
	"context"
	"net/http"
)

// JobState of a job.
type JobState string

// The states of a job.
const (
	JobInit    JobState = "INIT"
	JobRunning JobState = "RUNNING"
	JobSuccess JobState = "SUCCESS"
	JobFail    JobState = "FAIL"
)

// Job is an asynchronous operation. That it succeeded does not mean that the effect can be seen already.
type Job struct {
	ID    string
	Type  string
	State JobState
	// ServerID and VolumeID that it is about, where the job says so.
	ServerID, VolumeID string
	// Err of a job that failed.
	Err *Error
}

// Done reports whether the job has ended, well or not.
func (j *Job) Done() bool { return j.State == JobSuccess || j.State == JobFail }

type jobAnswer struct {
	JobID      string   `json:"job_id"`
	JobType    word     `json:"job_type"`
	Status     JobState `json:"status"`
	ErrorCode  word     `json:"error_code"`
	FailReason word     `json:"fail_reason"`
	Entities   struct {
		ServerID word        `json:"server_id"`
		VolumeID word        `json:"volume_id"`
		SubJobs  []jobAnswer `json:"sub_jobs"`
	} `json:"entities"`
}

// ServerJob reads a job of the compute service. NotFound means that the platform has forgotten it: look at the object itself.
func (c *Client) ServerJob(ctx context.Context, id string) (*Job, error) { return c.job(ctx, ECS, id) }

// VolumeJob reads a job of the volume service.
func (c *Client) VolumeJob(ctx context.Context, id string) (*Job, error) { return c.job(ctx, EVS, id) }

func (c *Client) job(ctx context.Context, service Service, id string) (*Job, error) {
	var out jobAnswer
	err := c.do(ctx, call{operation: "read job", service: service, method: http.MethodGet, path: "/v1/{project}/jobs/" + id, out: &out})
	if err != nil {
		return nil, err
	}
	j := &Job{ID: out.JobID, Type: string(out.JobType), State: out.Status, ServerID: string(out.Entities.ServerID), VolumeID: string(out.Entities.VolumeID)}
	code, reason := out.ErrorCode, out.FailReason
	for _, s := range out.Entities.SubJobs {
		if j.ServerID == "" {
			j.ServerID = string(s.Entities.ServerID)
		}
		if j.VolumeID == "" {
			j.VolumeID = string(s.Entities.VolumeID)
		}
		// The reason of a job with parts is with the part that failed.
		if reason == "" && s.FailReason != "" {
			code, reason = s.ErrorCode, s.FailReason
		}
	}
	if j.State == JobFail {
		j.Err = Failed(string(out.JobType), string(code), string(reason))
	}
	return j, nil
}

type jobID struct {
	JobID string `json:"job_id"`
}
