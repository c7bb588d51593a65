// Package disturb is a proxy between a client and a vCenter that disturbs their talk, for tests.
//
// It speaks HTTPS on both sides and understands just enough of SOAP to know which method is called on which object, so it works
// in front of any vCenter. It lets a call fail before it has happened, loses the answer of one that has happened, answers late
// or with 503, ends a client's session, and makes virtual machines and files disappear from answers for a while. What only the
// vCenter itself can do, tasks that are slow or fail, it passes on to the simulated one.
//
// A rule is a [vcenter.Fault]: tests need one vocabulary, whoever carries it out. Every call is counted by method, so that a
// point in a flow is named by method and number ("the second ReconfigVM_Task") and not by time; a [Witness] may look at each
// call before it happens and after, and decide that its client is dead.
package disturb
