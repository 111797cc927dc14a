// The ways of the program that the tests enter. Each prints "ready", goes on until its standard
// input ends, and prints "fine" when nothing it could notice was wrong.
#pragma once

namespace tidemark::test {

int hammer();          // threads in malloc, dlopen and system calls, with checksums
int hold_registers();  // patterns in registers across system calls
int wait_in(const char* call);
int count_signals();
int compute();                         // no system call at all
int restrict_itself(const char* how);  // by seccomp

// Until standard input ends.
bool go_on();
int say_fine(bool fine);

}  // namespace tidemark::test
