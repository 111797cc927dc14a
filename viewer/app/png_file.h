// Writes pictures as PNG files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark::view {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgba;  // rows from the top

  const uint8_t* at(int x, int y) const {
    return rgba.data() +
           4 * (static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x));
  }
};

// Writes to a temporary file first, so that an interrupted write leaves no incomplete picture.
Status write_png(const Image& image, const std::string& path);

}  // namespace tidemark::view
