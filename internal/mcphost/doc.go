// Package mcphost runs plugins that are processes of their own: a directory with a
// plugin.json, and a program that speaks the Model Context Protocol on its standard
// input and output.
//
// A faulty process harms only its own calls. Each process starts in the background, with
// its own process group and environment. Its messages and its time are bounded, and it is
// restarted when it dies. The progress of a call is delivered before the call's result, in
// order. The package does not restrict what a process does to the machine: a plugin runs
// with the rights of the user who runs Loquat.
package mcphost
