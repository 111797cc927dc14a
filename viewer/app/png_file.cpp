#include "viewer/app/png_file.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image_write.h>
#pragma GCC diagnostic pop

namespace tidemark::view {

Status write_png(const Image& image, const std::string& path) {
  const std::string fresh = path + ".part";
  std::vector<uint8_t> opaque = image.rgba;
  for (size_t i = 3; i < opaque.size(); i += 4) opaque[i] = 255;
  if (stbi_write_png(fresh.c_str(), image.width, image.height, 4, opaque.data(), image.width * 4) ==
      0) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    return Error{path + ": cannot write the picture; is the folder there and writable?"};
  }
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (error) return Error{path + ": " + error.message()};
  return {};
}

}  // namespace tidemark::view
