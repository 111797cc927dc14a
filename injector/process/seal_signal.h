// A signal by which a person asks for the window to be sealed (TIDEMARK_SEAL_SIGNAL).
//
// Its handler only counts; the writer thread looks at the count every round. A handler of the
// program is never replaced, and a program that installs one later gets the signal instead.
#pragma once

#include <cstdint>
#include <string_view>

namespace tidemark::injector {

// "USR2", "SIGUSR2", "RTMIN+3": those that have no other purpose. 0: not one of them.
int parse_seal_signal(std::string_view name) noexcept;

// False: the program handles or ignores it itself.
bool install_seal_signal(int number) noexcept;
// Restores the default, unless the program has installed a handler meanwhile.
void remove_seal_signal() noexcept;

// How often it was received.
uint32_t seal_signals() noexcept;

}  // namespace tidemark::injector
