package vcenter

import (
	_ "github.com/vmware/govmomi/lookup/simulator"       // lookup service
	_ "github.com/vmware/govmomi/pbm/simulator"          // storage policies
	_ "github.com/vmware/govmomi/sts/simulator"          // token service
	_ "github.com/vmware/govmomi/vapi/cluster/simulator" // REST: cluster modules
	_ "github.com/vmware/govmomi/vapi/simulator"         // REST: sessions, tags, content library
)
