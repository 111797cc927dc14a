// The text of torch_bridge.cpp and torch_bridge_abi.h, as they are written into the cache.
#pragma once

namespace tidemark::bridge {

extern const char kBridgeSource[];
extern const char kBridgeAbi[];

}  // namespace tidemark::bridge
