// Whether files lie on this node, and descriptors that a host does not meet by accident.
#pragma once

#include <cstdint>

namespace tidemark::injector {

// By the magic number in statfs::f_type.
bool is_network_file_system(uint64_t type) noexcept;
// False if the directory cannot be examined.
bool on_network_file_system(const char* directory) noexcept;

// Bytes that an unprivileged user can still write there; 0 if unknown.
uint64_t free_bytes_in(const char* directory) noexcept;

// The same file under a high number, close-on-exec; `fd` itself if that is not possible. open()
// takes the lowest free number. So when a host closes all descriptors, it does not get this number
// again for a file of its own, and we get EBADF instead of writing into that file.
int move_descriptor_up(int fd) noexcept;

}  // namespace tidemark::injector
