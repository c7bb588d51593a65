package hcs

import (
	"slices"
	"time"
)

// job is an asynchronous operation.
type job struct {
	id, kind string
	service  string
	begin    time.Time
	due      time.Time
	end      time.Time
	state    string
	serverID string
	volumeID string
	code     string
	reason   string
	// effect happens when the job is due; an error makes the job fail.
	effect func() *refusal
	// stuck: it never ends by itself.
	stuck bool
}

const (
	jobInit    = "INIT"
	jobRunning = "RUNNING"
	jobSuccess = "SUCCESS"
	jobFail    = "FAIL"
)

// start puts a job in line. What it does to the world happens when it is due, not before.
func (c *cloud) start(service, kind string, fill func(*job), effect func() *refusal) *job {
	now := c.opts.Now()
	j := &job{id: newID(), kind: kind, service: service, begin: now, due: now.Add(c.opts.JobTimes[kind]), state: jobInit, effect: effect}
	if fill != nil {
		fill(j)
	}
	c.jobs[j.id] = j
	c.touch()
	return j
}

// advance lets everything happen that is due. Handlers call it first, and a timer for those who only wait.
func (c *cloud) advance() {
	now := c.opts.Now()
	var due []*job
	for id, j := range c.jobs {
		switch {
		case !j.end.IsZero():
			if now.Sub(j.end) > c.opts.JobRetention {
				delete(c.jobs, id)
			}
		case j.stuck:
		case now.Before(j.due):
			j.state = jobRunning
		default:
			due = append(due, j)
		}
	}
	slices.SortFunc(due, func(a, b *job) int {
		if d := a.due.Compare(b.due); d != 0 {
			return d
		}
		return a.begin.Compare(b.begin)
	})
	for _, j := range due {
		j.end = now
		if refused := j.effect(); refused != nil {
			j.state, j.code, j.reason = jobFail, refused.code, refused.message
		} else {
			j.state = jobSuccess
		}
	}
	if len(due) > 0 {
		c.touch()
	}
}

// next is when something is due, zero if nothing is.
func (c *cloud) next() time.Time {
	var at time.Time
	for _, j := range c.jobs {
		if j.end.IsZero() && !j.stuck && (at.IsZero() || j.due.Before(at)) {
			at = j.due
		}
	}
	return at
}

func (j *job) view() map[string]any {
	stamp := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC().Format(time.RFC3339)
	}
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	entities := map[string]any{}
	if j.volumeID != "" {
		entities["volume_id"] = j.volumeID
	}
	if j.service == serviceECS && (j.kind == jobCreateServer || j.kind == jobDeleteServer) {
		part := map[string]any{}
		if j.serverID != "" && (j.state == jobSuccess || j.kind == jobDeleteServer) {
			part["server_id"] = j.serverID
		}
		entities = map[string]any{"sub_jobs_total": 1, "sub_jobs": []any{map[string]any{
			"job_id": j.id + "-1", "job_type": j.kind, "status": j.state, "entities": part, "begin_time": stamp(j.begin), "end_time": stamp(j.end),
			"error_code": text(j.code), "fail_reason": text(j.reason),
		}}}
	} else if j.serverID != "" {
		entities["server_id"] = j.serverID
	}
	return map[string]any{
		"job_id": j.id, "job_type": j.kind, "status": j.state, "begin_time": stamp(j.begin), "end_time": stamp(j.end),
		"error_code": text(j.code), "fail_reason": text(j.reason), "entities": entities,
	}
}

// Types of jobs.
const (
	jobCreateServer = "createServer"
	jobDeleteServer = "deleteServer"
	jobStartServer  = "startServer"
	jobStopServer   = "stopServer"
	jobAttach       = "attachVolume"
	jobDetach       = "detachVolume"
	jobCreateVolume = "createVolume"
	jobDeleteVolume = "deleteVolume"
)

// JobTypes are the types of jobs that exist.
func JobTypes() []string {
	return []string{jobCreateServer, jobDeleteServer, jobStartServer, jobStopServer, jobAttach, jobDetach, jobCreateVolume, jobDeleteVolume}
}
