//go:build !race

package provider

const raceCopies = 0
