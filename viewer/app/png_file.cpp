#include "viewer/app/png_file.h"

#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace {

// stb's compressor makes files three times as large. stb frees the result with free().
unsigned char* compress(unsigned char* data, int size, int* out_size, int /*quality*/) {
  uLongf most = compressBound(static_cast<uLong>(size));
  auto* out = static_cast<unsigned char*>(std::malloc(most));
  if (out == nullptr) return nullptr;
  if (compress2(out, &most, data, static_cast<uLong>(size), 9) != Z_OK) {
    std::free(out);
    return nullptr;
  }
  *out_size = static_cast<int>(most);
  return out;
}

}  // namespace

#define STBIW_ZLIB_COMPRESS compress
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image_write.h>
#pragma GCC diagnostic pop

namespace tidemark::view {

Status write_png(const Image& image, const std::string& path) {
  const std::string fresh = path + ".part";
  std::vector<uint8_t> rgb;
  rgb.reserve(image.rgba.size() / 4 * 3);
  for (size_t i = 0; i + 3 < image.rgba.size(); i += 4) {
    rgb.insert(rgb.end(), {image.rgba[i], image.rgba[i + 1], image.rgba[i + 2]});
  }
  stbi_write_force_png_filter = 0;  // flat colours compress better without filters
  if (stbi_write_png(fresh.c_str(), image.width, image.height, 3, rgb.data(), image.width * 3) ==
      0) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    return Error{path + ": cannot write the picture. Check that the folder exists and is writable"};
  }
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (error) return Error{path + ": " + error.message()};
  return {};
}

}  // namespace tidemark::view
