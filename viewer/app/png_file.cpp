#include "viewer/app/png_file.h"

#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"

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

namespace {

struct PngBytes {
  FdSink sink;
  bool good = true;
};

void put_png_bytes(void* out, void* bytes, int size) {
  auto& png = *static_cast<PngBytes*>(out);
  png.good =
      png.good && png.sink.write({static_cast<const uint8_t*>(bytes), static_cast<size_t>(size)});
}

}  // namespace

Status write_png(const Image& image, const std::string& path) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  std::vector<uint8_t> rgb;
  rgb.reserve(image.rgba.size() / 4 * 3);
  for (size_t i = 0; i + 3 < image.rgba.size(); i += 4) {
    rgb.insert(rgb.end(), {image.rgba[i], image.rgba[i + 1], image.rgba[i + 2]});
  }
  stbi_write_force_png_filter = 0;  // flat colours compress better without filters
  PngBytes out{FdSink(file->fd())};
  if (stbi_write_png_to_func(put_png_bytes, &out, image.width, image.height, 3, rgb.data(),
                             image.width * 3) == 0 ||
      !out.good) {
    return Error{path + ": cannot write the picture. Check that the disk is not full"};
  }
  return file->commit();
}

}  // namespace tidemark::view
