package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// Condition reasons of this platform's errors. Those of published conditions keep their published names.
const (
	ReasonUnreachable      = "VCenterUnreachable"
	ReasonCredentials      = "CredentialsRefused"
	ReasonNoPermission     = "NoPermission"
	ReasonTemplate         = "TemplateNotFound"
	ReasonNetwork          = "NetworkNotFound"
	ReasonDatastore        = "DatastoreNotFound"
	ReasonDatacenter       = "DatacenterNotFound"
	ReasonFolder           = "FolderNotFound"
	ReasonResourcePool     = "ResourcePoolNotFound"
	ReasonStoragePolicy    = "StoragePolicyNotFound"
	ReasonSnapshot         = "SnapshotNotFound"
	ReasonDatastoreFull    = "DatastoreFull"
	ReasonTopology         = "NetworkTopologyMismatch"
	ReasonDiskSize         = "DiskSizeInvalid"
	ReasonNoController     = "NoSCSIController"
	ReasonBadShape         = "InvalidSpec"
	ReasonNameTaken        = "ServerNotOurs"
	ReasonAttachments      = "AttachmentsUnknown"
	ReasonStillAttached    = "DiskStillAttached"
	ReasonSnapshotInTheWay = "SnapshotInTheWay"
	ReasonForeignDisk      = "UnexpectedDisk"
	ReasonTemplateVM       = "ServerIsTemplate"
	ReasonNotOff           = "NotPoweredOff"
	ReasonSoftPowerOff     = "GuestSoftPowerOffFailed"
	ReasonDirectory        = "DirectoryNotOurs"
	ReasonTask             = "TaskFailure"
	ReasonTooManyTasks     = "TooManyTasks"
)

func refused(reason, format string, args ...any) *machine.Error {
	return &machine.Error{Kind: machine.Refused, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func conflict(reason, format string, args ...any) *machine.Error {
	return &machine.Error{Kind: machine.Conflict, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) *machine.Error {
	return &machine.Error{Kind: machine.NotFound, Message: fmt.Sprintf(format, args...)}
}

func busy(reason string, after time.Duration, format string, args ...any) *machine.Error {
	return &machine.Error{Kind: machine.Busy, Reason: reason, Message: fmt.Sprintf(format, args...), RetryAfter: after}
}

// unreachable classifies what happened before there was a session.
func unreachable(cfg Config, err error) error {
	var thumb *thumbprintError
	if errors.As(err, &thumb) {
		return &machine.Error{Kind: machine.Refused, Reason: ReasonUnreachable, Err: thumb}
	}
	var typed *machine.Error
	if errors.As(err, &typed) {
		return typed
	}
	return &machine.Error{
		Kind: machine.Broken, Reason: ReasonUnreachable,
		Message: fmt.Sprintf("vCenter %s cannot be reached: is the address right, is the vCenter up?", cfg.Server), Err: bareCause(err),
	}
}

// bareCause drops what a network error says about the address: it is the server's, and our own port differs at every try.
func bareCause(err error) error {
	var op *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &op):
		return op.Err
	case errors.As(err, &request):
		return request.Err
	default:
		return err
	}
}

// WrongCertificate reports whether err is of a vCenter that shows another certificate than the one expected.
func WrongCertificate(err error) bool {
	var thumb *thumbprintError
	return errors.As(err, &thumb)
}

// methodFault digs vCenter's fault and its text out of an error, nil if there is none.
func methodFault(err error) (types.BaseMethodFault, string) {
	if err == nil {
		return nil, ""
	}
	if soap.IsSoapFault(err) {
		f := soap.ToSoapFault(err)
		if m, ok := f.VimFault().(types.BaseMethodFault); ok {
			return m, f.String
		}
		return byValue(f.VimFault()), f.String
	}
	if soap.IsVimFault(err) {
		return soap.ToVimFault(err), ""
	}
	var m types.BaseMethodFault
	text, ok := fault.As(err, &m)
	if ok {
		return m, text
	}
	return nil, ""
}

// byValue finds the pointer form of a fault that XML decoding left as a value.
func byValue(v any) types.BaseMethodFault {
	if v == nil {
		return nil
	}
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	m, _ := p.Interface().(types.BaseMethodFault)
	return m
}

// isFault reports whether err carries a fault of exactly this type.
func isFault[T types.BaseMethodFault](err error) bool {
	m, _ := methodFault(err)
	_, ok := m.(T)
	return ok
}

func isLoginRefusal(err error) bool {
	m, _ := methodFault(err)
	switch m.(type) {
	case *types.InvalidLogin, *types.NoPermission:
		return true
	default:
		return false
	}
}

// failed turns err, met while doing something, into what the caller must do about it.
func failed(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	var typed *machine.Error
	if errors.As(err, &typed) {
		return typed
	}
	what := fmt.Sprintf(doing, args...)
	if m, text := methodFault(err); m != nil {
		return faultError(m, text, what)
	}
	e := &machine.Error{Kind: machine.Broken, Reason: ReasonUnreachable, Message: what, Err: err}
	var status *statusError
	var thumb *thumbprintError
	switch {
	case errors.As(err, &thumb):
		e.Kind, e.Message, e.Err = machine.Refused, "", thumb
	case errors.As(err, &status) && status.code != http.StatusServiceUnavailable && status.code != http.StatusTooManyRequests:
		e.Reason = ReasonTask
	case strings.Contains(err.Error(), "503 ") || strings.Contains(err.Error(), "429 "):
		e.Kind, e.RetryAfter = machine.Busy, 10*time.Second
	case errors.Is(err, context.DeadlineExceeded):
		e.Message = what + ": vCenter did not answer in time"
	}
	return e
}

// faultError classifies one fault. text is vCenter's own sentence about it.
func faultError(m types.BaseMethodFault, text, what string) *machine.Error {
	name := strings.TrimPrefix(fmt.Sprintf("%T", m), "*types.")
	if text == "" {
		text = messagesOf(m)
	}
	if text == "" || strings.EqualFold(text, name) {
		text = name
	} else {
		text = fmt.Sprintf("%s (%s)", strings.TrimSuffix(text, "."), name)
	}
	e := &machine.Error{Kind: machine.Broken, Reason: ReasonTask, Message: what + ": " + text}
	switch f := m.(type) {
	case *types.ManagedObjectNotFound, *types.FileNotFound:
		e.Kind = machine.NotFound
	case *types.NoPermission:
		e.Kind, e.Reason = machine.Refused, ReasonNoPermission
		if f.Object != nil {
			e.Message = fmt.Sprintf("%s: the account lacks privilege %s on %s", what, f.PrivilegeId, f.Object)
		}
	case *types.InvalidLogin:
		e.Kind, e.Reason = machine.Refused, ReasonCredentials
	case *types.DuplicateName, *types.FileAlreadyExists:
		e.Kind, e.Reason = machine.Conflict, ReasonNameTaken
	case *types.TaskInProgress, *types.FileLocked, *types.ConcurrentAccess, *types.ResourceInUse, *types.HostCommunication,
		*types.RequestCanceled, *types.Timedout, *types.NotAuthenticated:
		e.Kind, e.RetryAfter = machine.Busy, 5*time.Second
	case *types.NoDiskSpace:
		e.Kind, e.Reason = machine.Refused, ReasonDatastoreFull
	case *types.InvalidArgument:
		e.Kind = machine.Refused
		if f.InvalidProperty != "" {
			e.Message += ": " + f.InvalidProperty
		}
	case types.BaseInsufficientResourcesFault, types.BaseInvalidVmConfig, types.BaseInvalidState, types.BaseNotSupported,
		*types.InvalidName, *types.RestrictedVersion, *types.DatacenterMismatch:
		e.Kind = machine.Refused
	}
	return e
}

// messagesOf collects the texts a fault carries itself.
func messagesOf(m types.BaseMethodFault) string {
	var texts []string
	for _, message := range m.GetMethodFault().FaultMessage {
		if message.Message != "" {
			texts = append(texts, message.Message)
		}
	}
	return strings.Join(texts, "; ")
}

// alreadyThere: the power state asked for is the one there is.
func alreadyThere(m types.BaseMethodFault) bool {
	f, ok := m.(*types.InvalidPowerState)
	return ok && f.ExistingState == f.RequestedState
}
