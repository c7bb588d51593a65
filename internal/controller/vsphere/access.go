package vsphere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
)

// Environment variables with the manager's own credentials, for clusters that name none (VS-V42).
const (
	usernameVariable = "VSPHERE_USERNAME"
	passwordVariable = "VSPHERE_PASSWORD"
)

// access finds credentials and the session they open. All reconcilers share one.
type access struct {
	client   client.Client
	reader   client.Reader // live
	metadata client.Reader // cached; for Secrets it has metadata only
	sessions *vsphere.Sessions
	meter    *vsphere.Meter

	// namespace holds the Secrets of VSphereClusterIdentities.
	namespace string
	userAgent string

	mu      sync.Mutex
	secrets map[client.ObjectKey]secretData
}

// secretData remembers a Secret's credentials under its version, so that a machine's pass need not read the Secret again.
type secretData struct {
	version            string
	username, password string
}

// credentials are a user name and a password, and where they came from, in words.
type credentials struct {
	username, password string
	source             string
}

// session opens (or shares) the session of a cluster at a server that an object (of, such as "VSphereMachine ns/m1") names. An
// empty server is the cluster's own. Every error is a *machine.Error whose message begins with the object and the field that the
// wrong value came from.
func (a *access) session(ctx context.Context, cluster *infrav1.VSphereCluster, server, thumbprint, of string) (*vsphere.Session, error) {
	if server == "" || server == cluster.Spec.Server {
		server, thumbprint, of = cluster.Spec.Server, cluster.Spec.Thumbprint, sessionOwner(cluster)
	}
	if server == "" {
		return nil, &machine.Error{
			Kind: machine.Refused, Reason: infrav1.VCenterUnreachableReason,
			Message: fmt.Sprintf("VSphereCluster %s/%s has no spec.server: set it to the name or address of vCenter", cluster.Namespace, cluster.Name),
		}
	}
	creds, err := a.credentials(ctx, cluster)
	if err != nil {
		return nil, err
	}
	session, err := a.sessions.Acquire(ctx, sessionOwner(cluster), vsphere.Config{
		Server: server, Username: creds.username, Password: creds.password, Thumbprint: thumbprint,
		UserAgent: a.userAgent, Meter: a.meter, Log: sessionLog(server),
	})
	if err != nil {
		return nil, explain(err, of, creds)
	}
	return session, nil
}

func sessionLog(server string) logr.Logger {
	return ctrl.Log.WithName("vcenter").WithValues("server", server)
}

func sessionOwner(cluster *infrav1.VSphereCluster) string {
	return "VSphereCluster " + client.ObjectKeyFromObject(cluster).String()
}

// release gives a cluster's sessions back; the last holder's are logged out.
func (a *access) release(ctx context.Context, cluster *infrav1.VSphereCluster) {
	a.sessions.Release(ctx, sessionOwner(cluster))
}

// explain puts before what the adapter said where the value comes from that made it say so: the address, the thumbprint, or the
// account.
func explain(err error, of string, creds credentials) *machine.Error {
	out := &machine.Error{Kind: machine.KindOf(err), Reason: infrav1.VCenterUnreachableReason}
	from := of + ", spec.server"
	var e *machine.Error
	if errors.As(err, &e) {
		out.RetryAfter = e.RetryAfter
		switch {
		case e.Reason == vsphere.ReasonCredentials || e.Reason == vsphere.ReasonNoPermission:
			from = creds.source
		case vsphere.WrongCertificate(err):
			from = of + ", spec.thumbprint"
		}
	}
	out.Message = from + ": " + err.Error()
	return out
}

// credentials reads the user name and password that a cluster names. Errors are *machine.Error.
func (a *access) credentials(ctx context.Context, cluster *infrav1.VSphereCluster) (credentials, error) {
	ref := cluster.Spec.IdentityRef
	switch {
	case ref == nil:
		c := credentials{username: os.Getenv(usernameVariable), password: os.Getenv(passwordVariable), source: "the manager's environment"}
		if c.username == "" || c.password == "" {
			return c, unavailable("VSphereCluster %s/%s has no spec.identityRef and the manager has no credentials of its own (%s, %s): name a Secret in spec.identityRef",
				cluster.Namespace, cluster.Name, usernameVariable, passwordVariable)
		}
		return c, nil
	case ref.Kind == infrav1.SecretKind:
		return a.secret(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name})
	case ref.Kind == infrav1.VSphereClusterIdentityKind:
		return a.identity(ctx, cluster, ref.Name)
	default:
		return credentials{}, unavailable("VSphereCluster %s/%s: spec.identityRef.kind %q is neither %s nor %s",
			cluster.Namespace, cluster.Name, ref.Kind, infrav1.SecretKind, infrav1.VSphereClusterIdentityKind)
	}
}

func (a *access) identity(ctx context.Context, cluster *infrav1.VSphereCluster, name string) (credentials, error) {
	identity := &infrav1.VSphereClusterIdentity{}
	if err := a.client.Get(ctx, client.ObjectKey{Name: name}, identity); err != nil {
		if apierrors.IsNotFound(err) {
			return credentials{}, unavailable("VSphereClusterIdentity %s, named by VSphereCluster %s/%s, does not exist: create it or name another",
				name, cluster.Namespace, cluster.Name)
		}
		return credentials{}, broken(err)
	}
	allowed, err := a.allows(ctx, identity, cluster.Namespace)
	if err != nil {
		return credentials{}, broken(err)
	}
	if !allowed {
		return credentials{}, unavailable("VSphereClusterIdentity %s does not allow namespace %s: let spec.allowedNamespaces.selector match the namespace's labels",
			name, cluster.Namespace)
	}
	if !identity.Status.Ready {
		return credentials{}, unavailable("VSphereClusterIdentity %s is not ready: see its condition %s", name, infrav1.CredentialsAvailableCondition)
	}
	return a.secret(ctx, client.ObjectKey{Namespace: a.namespace, Name: identity.Spec.SecretName})
}

// allows says whether an identity may be used from a namespace; no selector at all means from nowhere (VS-V41).
func (a *access) allows(ctx context.Context, identity *infrav1.VSphereClusterIdentity, namespace string) (bool, error) {
	if identity.Spec.AllowedNamespaces == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&identity.Spec.AllowedNamespaces.Selector)
	if err != nil {
		return false, fmt.Errorf("VSphereClusterIdentity %s: spec.allowedNamespaces.selector: %w", identity.Name, err)
	}
	ns := &corev1.Namespace{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(ns.Labels)), nil
}

// secret reads credentials from a Secret. The metadata cache tells whether what we remember is still current; Secrets
// themselves are never cached wholesale.
func (a *access) secret(ctx context.Context, key client.ObjectKey) (credentials, error) {
	source := fmt.Sprintf("Secret %s", key)
	a.mu.Lock()
	known, remembered := a.secrets[key]
	a.mu.Unlock()
	if remembered {
		current := secretMetadata()
		if err := a.metadata.Get(ctx, key, current); err == nil && current.ResourceVersion == known.version {
			return credentials{username: known.username, password: known.password, source: source}, nil
		}
	}
	secret := &corev1.Secret{}
	if err := a.reader.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return credentials{}, unavailable("%s does not exist: create it with the keys %s and %s", source, infrav1.SecretUsernameKey, infrav1.SecretPasswordKey)
		}
		return credentials{}, broken(err)
	}
	data := secretData{
		version:  secret.ResourceVersion,
		username: string(secret.Data[infrav1.SecretUsernameKey]),
		password: string(secret.Data[infrav1.SecretPasswordKey]),
	}
	for field, value := range map[string]string{infrav1.SecretUsernameKey: data.username, infrav1.SecretPasswordKey: data.password} {
		if value == "" {
			return credentials{}, unavailable("%s has no key %q, or it is empty: it needs %s and %s", source, field, infrav1.SecretUsernameKey, infrav1.SecretPasswordKey)
		}
	}
	a.mu.Lock()
	if a.secrets == nil {
		a.secrets = map[client.ObjectKey]secretData{}
	}
	a.secrets[key] = data
	a.mu.Unlock()
	return credentials{username: data.username, password: data.password, source: source}, nil
}

func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

func unavailable(format string, args ...any) *machine.Error {
	return &machine.Error{Kind: machine.Refused, Reason: infrav1.IdentityCredentialsUnavailableReason, Message: fmt.Sprintf(format, args...)}
}

func broken(err error) *machine.Error {
	return &machine.Error{Kind: machine.Broken, Reason: infrav1.VCenterUnreachableReason, Err: err}
}
