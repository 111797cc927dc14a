// The modes of the program that the tests inject into. Each prints "ready", runs until its standard
// input ends, and prints "fine" if it noticed nothing wrong.
#pragma once

namespace tidemark::test {

int hammer();          // threads in malloc, dlopen and system calls, with checksums
int hold_registers();  // patterns in registers across system calls
int wait_in(const char* call);
int count_signals();
int compute();                         // no system calls at all
int restrict_itself(const char* how);  // with seccomp

// True until standard input closes.
bool go_on();
int say_fine(bool fine);

}  // namespace tidemark::test
