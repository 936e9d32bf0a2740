// Package e2e tests the whole program from outside: the built programs on real files, with real processes that are killed
// for real. Its user code is the test binary itself (user_test.go), which asks the test what to do (director_test.go).
package e2e
