package rules

import "github.com/berth-dev/berth/api/vsphere/v1beta1"

// DefaultVSphereMachine fills in what a machine leaves open. Templates get the same, so that two templates that mean the same
// are the same.
func DefaultVSphereMachine(s *v1beta1.VSphereMachineSpec) {
	if s.Datacenter == "" {
		s.Datacenter = v1beta1.AnyDatacenter
	}
	if s.OS == "" {
		s.OS = v1beta1.Linux
	}
	if s.PowerOffMode == "" {
		s.PowerOffMode = v1beta1.VirtualMachinePowerOpModeHard
	}
}

// DefaultVSphereVM fills in what a virtual machine leaves open.
func DefaultVSphereVM(s *v1beta1.VSphereVMSpec) {
	if s.OS == "" {
		s.OS = v1beta1.Linux
	}
	if s.PowerOffMode == "" {
		s.PowerOffMode = v1beta1.VirtualMachinePowerOpModeHard
	}
}

// DefaultVSphereDeploymentZone fills in what a zone leaves open.
func DefaultVSphereDeploymentZone(s *v1beta1.VSphereDeploymentZoneSpec) {
	if s.ControlPlane == nil {
		yes := true
		s.ControlPlane = &yes
	}
}
