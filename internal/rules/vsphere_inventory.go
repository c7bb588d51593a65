package rules

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// thumbprint of a certificate: 20 bytes of SHA-1 or 32 of SHA-256.
var thumbprint = regexp.MustCompile(`^([0-9A-Fa-f]{2}:){19}([0-9A-Fa-f]{2}|([0-9A-Fa-f]{2}:){12}[0-9A-Fa-f]{2})$`)

// VSphereCluster judges a new cluster (old is nil) or a changed one. pools are those of its namespace that belong to its
// Cluster.
func VSphereCluster(old, c *v1beta1.VSphereCluster, pools []v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	if c.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(old.Spec, c.Spec) {
		return v
	}
	v.since(old != nil, func() Verdict { return clusterSpec(old, pools) }, clusterSpec(c, pools))
	if old == nil {
		v.Merge(clusterName(field.NewPath("metadata", "name"), c.Name))
	}
	return v
}

func clusterSpec(c *v1beta1.VSphereCluster, pools []v1beta1.VSphereMachineConfigPool) Verdict {
	spec := field.NewPath("spec")
	v := vCenter(spec, c.Spec.Server, c.Spec.Thumbprint)
	endpoint, err := netip.ParseAddr(c.Spec.ControlPlaneEndpoint.Host)
	if err != nil {
		return v
	}
	for i := range pools {
		for j := range pools[i].Spec.Configs {
			slot := &pools[i].Spec.Configs[j]
			_, addresses := slotNetwork(field.NewPath("spec", "configs").Index(j), slot, "")
			for _, a := range addresses {
				if a.addr == endpoint {
					v.refuse(field.Invalid(spec.Child("controlPlaneEndpoint", "host"), c.Spec.ControlPlaneEndpoint.Host, fmt.Sprintf("is the address of slot %s of pool %s/%s; the endpoint needs an address of its own", slot.Hostname, pools[i].Namespace, pools[i].Name)))
				}
			}
		}
	}
	return v
}

func vCenter(path *field.Path, server, print string) Verdict {
	var v Verdict
	if scheme, rest, found := strings.Cut(server, "://"); found {
		v.refuse(field.Invalid(path.Child("server"), server, fmt.Sprintf("must be a host name or address without %s://; write %q", scheme, strings.TrimSuffix(rest, "/"))))
	} else if strings.ContainsAny(server, "/ \t\n") {
		v.refuse(field.Invalid(path.Child("server"), server, "must be the host name or address of vCenter and nothing else, such as vcenter.example.com"))
	}
	if print != "" && !thumbprint.MatchString(print) {
		v.refuse(field.Invalid(path.Child("thumbprint"), print, "must be the SHA-1 or SHA-256 thumbprint of vCenter's certificate, 20 or 32 bytes in hexadecimal with colons; leave it out to accept any certificate"))
	}
	return v
}

// VSphereClusterTemplate judges a changed cluster template.
func VSphereClusterTemplate(old, t *v1beta1.VSphereClusterTemplate) Verdict {
	var v Verdict
	if old == nil || t.DeletionTimestamp != nil {
		return v
	}
	for _, d := range differences(field.NewPath("spec", "template", "spec"), old.Spec.Template.Spec, t.Spec.Template.Spec) {
		v.refuse(field.Invalid(d.path, field.OmitValueType{}, fmt.Sprintf("%s: field is immutable, create a new resource: export %s, give it another name and change that", d, t.Name)))
	}
	return v
}

// needsComputeCluster says why a failure domain must name a compute cluster, "" if it need not.
func needsComputeCluster(d *v1beta1.VSphereFailureDomain) string {
	switch {
	case d.Spec.Topology.Hosts != nil:
		return "groups of hosts belong to a compute cluster, name it"
	case d.Spec.Region.Type == v1beta1.ComputeClusterFailureDomain:
		return "the region is of type ComputeCluster, name the cluster"
	case d.Spec.Zone.Type == v1beta1.ComputeClusterFailureDomain:
		return "the zone is of type ComputeCluster, name the cluster"
	}
	return ""
}

// VSphereFailureDomain judges a new failure domain (old is nil) or a changed one.
func VSphereFailureDomain(old, d *v1beta1.VSphereFailureDomain) Verdict {
	var v Verdict
	if d.DeletionTimestamp != nil {
		return v
	}
	spec := field.NewPath("spec")
	if old != nil {
		for _, change := range differences(spec, old.Spec, d.Spec) {
			v.refuse(field.Forbidden(change.path, fmt.Sprintf("%s: a failure domain cannot be modified, machines have been placed by %s; create one of another name and name that in the VSphereDeploymentZone", change, d.Name)))
		}
		return v
	}
	topology := spec.Child("topology")
	t := d.Spec.Topology
	hasCluster := t.ComputeCluster != nil && *t.ComputeCluster != ""
	if d.Spec.Region.Type == v1beta1.HostGroupFailureDomain {
		v.refuse(field.NotSupported(spec.Child("region", "type"), d.Spec.Region.Type, []v1beta1.FailureDomainType{v1beta1.DatacenterFailureDomain, v1beta1.ComputeClusterFailureDomain}))
	}
	if d.Spec.Zone.Type == v1beta1.HostGroupFailureDomain && t.Hosts == nil {
		v.refuse(field.Required(topology.Child("hosts"), "a zone of type HostGroup needs the groups of hosts and virtual machines"))
	}
	if what := needsComputeCluster(d); what != "" && !hasCluster {
		v.refuse(field.Required(topology.Child("computeCluster"), what))
	}
	if len(t.Networks) > 0 && len(t.NetworkConfigurations) > 0 {
		v.refuse(field.Forbidden(topology.Child("networkConfigurations"), fmt.Sprintf("excludes networks, which lists %v; use one of the two", t.Networks)))
	}
	for i, n := range t.Networks {
		if n == "" {
			v.refuse(field.Required(topology.Child("networks").Index(i), "name the network or port group of this interface, or remove the entry"))
		}
	}
	for i, n := range t.NetworkConfigurations {
		if n.NetworkName == "" {
			v.refuse(field.Required(topology.Child("networkConfigurations").Index(i).Child("networkName"), "name the network or port group of this interface, or remove the entry"))
		}
	}
	return v
}
