// Package mcphost runs plugins that are processes of their own: a directory with a
// plugin.json, and a program that speaks the Model Context Protocol on its standard
// input and output.
//
// It promises that such a process can do no harm but to its own calls: it comes up in
// the background, has a process group and an environment of its own, is bounded in
// what it may send and how long it may take, and is started again when it dies. What
// a call reports while it runs is handed on before its result, in order. It does not
// confine what a process does to the machine: a plugin runs with the rights of the
// user who runs Loquat.
package mcphost
