// Prints a pickle document as one line of canonical JSON, for comparison with another reader.
//
//   None, bool, int   null, true, 12
//   str               "…", where each byte of its UTF-8 that is not printable ASCII is \u00XX
//   bytes             {"bytes": "…"}, likewise
//   float             {"float": "3ff0000000000000"}, its bits
//   list              […]
//   tuple             {"tuple": […]}
//   dict              {"dict": [key, value, key, value, …]}
//
// A shared container is printed at each occurrence or, with Sharing::kShow, only once: then the nth
// container that was printed (from 0, empty tuples not counted) is {"ref": n} when met again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <unordered_map>

#include "collector/pickle/reader.h"
#include "proto/base/bits_as.h"

namespace tidemark {

class PickleDump {
 public:
  enum class Sharing { kExpand, kShow };

  PickleDump(const PickleDocument& document, Sharing sharing, uint64_t max_values)
      : document_(document), sharing_(sharing), values_left_(max_values) {}

  // Nothing when there are more values to print than the maximum.
  std::optional<std::string> run() {
    print(document_.root());
    if (values_left_ == 0) return std::nullopt;
    return std::move(out_);
  }

 private:
  void print(PickleValue value) {
    if (values_left_ == 0) return;
    --values_left_;
    switch (value.kind()) {
      case PickleKind::kAbsent:
        out_ += "absent";  // not JSON: must never appear
        break;
      case PickleKind::kNone:
        out_ += "null";
        break;
      case PickleKind::kBool:
        out_ += *document_.as_bool(value) ? "true" : "false";
        break;
      case PickleKind::kInt:
        print_int(value);
        break;
      case PickleKind::kFloat:
        print_float(*document_.as_f64(value));
        break;
      case PickleKind::kString:
        print_text(*document_.as_string(value));
        break;
      case PickleKind::kBytes:
        print_bytes(*document_.as_bytes(value));
        break;
      case PickleKind::kList:
      case PickleKind::kTuple:
      case PickleKind::kDict:
        print_container(value);
        break;
    }
  }

  void print_int(PickleValue value) {
    if (const std::optional<int64_t> number = document_.as_i64(value)) {
      out_ += std::to_string(*number);
    } else {
      out_ += std::to_string(*document_.as_u64(value));
    }
  }

  void print_float(double number) {
    char hex[32];
    std::snprintf(hex, sizeof(hex), "%016llx",
                  static_cast<unsigned long long>(bits_as<uint64_t>(number)));
    out_ += std::string("{\"float\": \"") + hex + "\"}";
  }

  void print_bytes(std::span<const uint8_t> bytes) {
    out_ += "{\"bytes\": ";
    print_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    out_ += "}";
  }

  void print_text(std::string_view text) {
    out_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
        out_ += c;
        continue;
      }
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
      out_ += escape;
    }
    out_ += '"';
  }

  void print_container(PickleValue value) {
    const bool is_dict = value.kind() == PickleKind::kDict;
    const bool is_tuple = value.kind() == PickleKind::kTuple;
    if (sharing_ == Sharing::kShow && !(is_tuple && document_.items(value).empty())) {
      const auto [known, is_new] = seen_.try_emplace(value.container_id(), seen_.size());
      if (!is_new) {
        out_ += "{\"ref\": " + std::to_string(known->second) + "}";
        return;
      }
    }
    out_ += is_dict ? "{\"dict\": [" : is_tuple ? "{\"tuple\": [" : "[";
    bool first = true;
    const auto print_next = [this, &first](PickleValue child) {
      if (!first) out_ += ", ";
      first = false;
      print(child);
    };
    for (const PickleValue item : document_.items(value)) print_next(item);
    for (size_t i = 0; i < document_.keys(value).size(); ++i) {
      print_next(document_.keys(value)[i]);
      print_next(document_.values(value)[i]);
    }
    out_ += is_dict || is_tuple ? "]}" : "]";
  }

  const PickleDocument& document_;
  const Sharing sharing_;
  uint64_t values_left_;
  std::string out_;
  std::unordered_map<uint32_t, size_t> seen_;
};

}  // namespace tidemark
