package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Service is one of the platform's services.
type Service string

// The services that are used.
const (
	IAM Service = "iam"
	ECS Service = "ecs"
	EVS Service = "evs"
	VPC Service = "vpc"
	ELB Service = "elb"
	IMS Service = "ims"
)

var services = []Service{IAM, ECS, EVS, VPC, ELB, IMS}

// ELBDialect is the form of the load balancer's API.
type ELBDialect string

const (
	// LBaaS is /v2.0/lbaas, the only form that knows the load balancer's own addresses.
	LBaaS ELBDialect = "lbaas-v2.0"
	// ELBv3 is /v3/{project}/elb.
	ELBv3 ELBDialect = "elb-v3"
)

// EVSDialect is the word for volumes in paths.
type EVSDialect string

const (
	// Volumes is what Huawei Cloud Stack uses.
	Volumes EVSDialect = "volumes"
	// CloudVolumes is what the public cloud uses.
	CloudVolumes EVSDialect = "cloudvolumes"
)

// Config is everything a Client needs to know. Its text form hides the secret key.
type Config struct {
	AccessKey, SecretKey string
	// ProjectID of the resource space.
	ProjectID string
	// Region and Domain make host names: <service>.<region>.<domain>.
	Region, Domain string
	// IAMScheme of the IAM endpoint, https unless the installation says otherwise.
	IAMScheme string
	// IAMHostPrefix is the first label of the IAM host.
	IAMHostPrefix string
	// Endpoints override the computed base URLs.
	Endpoints map[Service]string
	// CABundle is the PEM of the certificate authorities, nil for the machine's own.
	CABundle []byte
	// InsecureSkipTLSVerify does not check certificates.
	InsecureSkipTLSVerify bool
	ELB                   ELBDialect
	EVS                   EVSDialect

	// UserAgent is sent with every call, "berth" when empty.
	UserAgent string
	// Limits bound what one credential asks of the platform.
	Limits Limits
	// Meter counts calls; nil counts nothing.
	Meter *Meter
}

// Limits bound what one credential asks of the platform. Zero values mean the defaults.
type Limits struct {
	// PerSecond is the sustained rate of calls, Burst how many may come at once.
	PerSecond float64
	Burst     int
	// CallTimeout bounds one call.
	CallTimeout time.Duration
	// AuthPause is how long nothing is sent after a refused signature.
	AuthPause time.Duration
	// ThrottlePause is how long nothing is sent after the platform asked for less, if it does not say for how long.
	ThrottlePause time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.PerSecond == 0 {
		l.PerSecond = 5
	}
	if l.Burst == 0 {
		l.Burst = 10
	}
	if l.CallTimeout == 0 {
		l.CallTimeout = 30 * time.Second
	}
	if l.AuthPause == 0 {
		l.AuthPause = time.Minute
	}
	if l.ThrottlePause == 0 {
		l.ThrottlePause = 5 * time.Second
	}
	return l
}

// String names whom the configuration speaks for, without the secret.
func (c Config) String() string {
	return fmt.Sprintf("access key %s of project %s in region %s", c.AccessKey, c.ProjectID, c.Region)
}

// GoString keeps the secret out of %#v as well.
func (c Config) GoString() string { return c.String() }

// Key is the same for configurations that mean the same client, and says nothing about the secret.
func (c Config) Key() string {
	text := fmt.Sprintf("%q %q %q %q %q %q %q %q %t %q %q", c.AccessKey, c.SecretKey, c.ProjectID, c.Region, c.Domain, c.IAMScheme,
		c.IAMHostPrefix, c.CABundle, c.InsecureSkipTLSVerify, c.ELB, c.EVS)
	for _, s := range services {
		text += " " + c.Endpoints[s]
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Base is the URL that the paths of a service are added to, without a slash at its end.
func (c Config) Base(s Service) string {
	if u := c.Endpoints[s]; u != "" {
		return strings.TrimRight(u, "/")
	}
	switch s {
	case IAM:
		return c.IAMScheme + "://" + c.IAMHostPrefix + "." + c.Domain
	case ELB:
		s = VPC // the load balancer's API is served by the network service's host
	}
	return "https://" + string(s) + "." + c.Region + "." + c.Domain
}

// Keys of a Secret with credentials, as published.
const (
	keyAccessKey     = "accessKey"
	keySecretKey     = "secretKey"
	keyProjectID     = "projectID"
	keyRegion        = "region"
	keyDomain        = "externalGlobalDomain"
	keySchema        = "schema"
	keyCABundle      = "caBundle"
	keyInsecure      = "insecureSkipTLSVerify"
	keyEndpoints     = "endpoints"
	keyELBDialect    = "elbDialect"
	keyEVSDialect    = "evsDialect"
	keyIAMHostPrefix = "iamHostPrefix"
)

// ConfigOf reads the data of a Secret. White space around a value is ignored: a line break at the end is the most common mistake.
// The error is one sentence that names the key, and never a secret.
func ConfigOf(data map[string][]byte) (Config, error) {
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	var missing []string
	for _, key := range []string{keyAccessKey, keySecretKey, keyProjectID, keyRegion, keyDomain} {
		if value(key) == "" {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return Config{}, fmt.Errorf("the key %s is missing or empty; accessKey, secretKey, projectID, region and externalGlobalDomain are needed", strings.Join(missing, ", "))
	}
	c := Config{
		AccessKey: value(keyAccessKey), SecretKey: value(keySecretKey), ProjectID: value(keyProjectID), Region: value(keyRegion),
		Domain: value(keyDomain), IAMScheme: "https", IAMHostPrefix: "iam-apigateway-proxy", ELB: LBaaS, EVS: Volumes,
		CABundle: data[keyCABundle],
	}
	if v := value(keySchema); v != "" {
		if v != "https" && v != "http" {
			return Config{}, fmt.Errorf("the key %s is %q; it is https or http", keySchema, v)
		}
		c.IAMScheme = v
	}
	if v := value(keyIAMHostPrefix); v != "" {
		c.IAMHostPrefix = v
	}
	switch v := value(keyInsecure); v {
	case "true":
		c.InsecureSkipTLSVerify = true
	case "", "false":
	default:
		return Config{}, fmt.Errorf("the key %s is %q; it is true or false", keyInsecure, v)
	}
	switch v := ELBDialect(value(keyELBDialect)); v {
	case "":
	case LBaaS, ELBv3:
		c.ELB = v
	default:
		return Config{}, fmt.Errorf("the key %s is %q; it is %s or %s", keyELBDialect, v, LBaaS, ELBv3)
	}
	switch v := EVSDialect(value(keyEVSDialect)); v {
	case "":
	case Volumes, CloudVolumes:
		c.EVS = v
	default:
		return Config{}, fmt.Errorf("the key %s is %q; it is %s or %s", keyEVSDialect, v, Volumes, CloudVolumes)
	}
	if err := c.endpoints(data[keyEndpoints]); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) endpoints(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if err := yaml.Unmarshal(text, &c.Endpoints); err != nil {
		return fmt.Errorf("the key %s is not a map from service to URL", keyEndpoints)
	}
	for s, u := range c.Endpoints {
		if !slices.Contains(services, s) {
			return fmt.Errorf("the key %s names the service %q; known are %v", keyEndpoints, s, services)
		}
		if parsed, err := url.Parse(u); err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
			return fmt.Errorf("the key %s has %q for %s, which is not an http or https URL", keyEndpoints, u, s)
		}
	}
	return nil
}
