// The text of torch_bridge.cpp and torch_bridge_abi.h, written to the cache to be compiled.
#pragma once

namespace tidemark::bridge {

extern const char kBridgeSource[];
extern const char kBridgeAbi[];

}  // namespace tidemark::bridge
