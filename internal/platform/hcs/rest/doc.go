// Package rest speaks the REST API of Huawei Cloud Stack: signed requests, typed answers, typed errors, and no decisions.
//
// It is a thin client of our own because the vendor's knows no context and no deadline, and models neither the power_on of
// servers, nor the load balancer's own addresses, nor the paths that Huawei Cloud Stack uses for volumes. The services differ
// between versions of the platform in two places, which are data here: the dialect of volumes and that of load balancers.
//
// One Client serves one credential. It limits the rate of its calls, stops for as long as the platform asks it to, and stops for
// a minute after a refused signature, so that nobody's account is locked by a loop. Secrets never reach an error or a log.
package rest
