// Facts about this machine that `ingot doctor` and the first start ask for.
#pragma once
#include <cstdint>
#include <string>

#include "io/hub/hub.h"

namespace ingot {

// One line that says why the Hub does not answer; empty if it does. One attempt, which waits some seconds at most.
std::string why_no_hub(const HubOptions& options);

// Free bytes on the disk of a folder, which may not exist yet; 0 if unknown.
uint64_t free_disk_bytes(const std::string& folder);

// One line that says why files cannot be written in a folder; empty if they can. A missing folder is fine if it can be
// created. Nothing stays behind.
std::string why_not_writable(const std::string& folder);

// Whether a program answers connections at this port of this machine.
bool is_port_taken(int port);

}  // namespace ingot
