// Package supervise runs a set of operating-system processes, lets others kill, stop, pause and start them by name, and
// says how they are.
//
// Promise: what an operator asks for is what happens, and it has happened when the call returns. A process that ends by
// itself is reported once, with its last log lines. None of the processes outlives this one, however it ends.
//
//	               ┌────────── Start ───────────────┐
//	               ▼                                │
//	waiting ──▶ running ── Stop ──▶ stopped ────────┤
//	             │   ▲  └── Kill ──▶ killed ────────┤
//	          Pause Resume                          │
//	             ▼   │   (by itself) ──▶ died ──────┘
//	            paused
//
// Serve and Client carry the same verbs through a unix socket, for the commands that people type.
//
// The package does not own: what the processes are and in which order they start (package stack).
package supervise
