#include "collector/pickle/byte_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>

namespace tidemark {
namespace {

std::string text_of(const ByteSource& source) {
  return {reinterpret_cast<const char*>(source.bytes().data()), source.bytes().size()};
}

// One gzip member.
std::string gzip(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 16;
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string random_text(size_t bytes) {
  std::mt19937 random(3);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random() % 20);
  return text;
}

class ByteSourceTest : public testing::Test {
 protected:
  ByteSourceTest() {
    std::string name = (std::filesystem::temp_directory_path() / "byte_source_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ByteSourceTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // The error for a file with this content, without its name.
  std::string error_of(const std::string& content, uint64_t limit = 1 << 20) const {
    const std::string file = write("faulty", content);
    const Result<ByteSource> source = open_bytes(file, limit);
    if (source) return "no error";
    EXPECT_EQ(source.error().message.rfind(file + " ", 0), 0U) << source.error().message;
    return source.error().message.substr(file.size() + 1);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ByteSourceTest, MapsAFileAsItIs) {
  const std::string text = random_text(100'000);
  const Result<ByteSource> source = open_bytes(write("plain", text));
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(text_of(*source), text);
  EXPECT_FALSE(source->was_compressed());
}

TEST_F(ByteSourceTest, MapsFilesOfOneAndTwoBytes) {
  for (const std::string text : {"x", "xy", "\x1f"}) {
    const Result<ByteSource> source = open_bytes(write("small", text));
    ASSERT_TRUE(source.ok());
    EXPECT_EQ(text_of(*source), text);
  }
}

TEST_F(ByteSourceTest, InflatesGzip) {
  for (const size_t bytes : {1UL, 1000UL, 65535UL, 65536UL, 65537UL, 3'000'000UL}) {
    const std::string text = random_text(bytes);
    const Result<ByteSource> source = open_bytes(write("x.gz", gzip(text)));
    ASSERT_TRUE(source.ok()) << source.error().message;
    EXPECT_EQ(text_of(*source), text);
    EXPECT_TRUE(source->was_compressed());
  }
  const std::string zeros(10'000'000, '\0');  // inflates to 1000 times its size, but not to much
  const Result<ByteSource> source = open_bytes(write("zeros.gz", gzip(zeros)));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(text_of(*source), zeros);
}

TEST_F(ByteSourceTest, JoinsTheMembersOfAGzipFile) {
  const std::string one = random_text(70'000);
  const Result<ByteSource> source =
      open_bytes(write("many.gz", gzip(one) + gzip("") + gzip("two") + std::string(512, '\0')));
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(text_of(*source), one + "two");
}

TEST_F(ByteSourceTest, LimitsWhatGzipInflatesTo) {
  const std::string text = random_text(100'000);
  const std::string why = "inflates to more than the memory limit for compressed input";
  EXPECT_EQ(error_of(gzip(text), 99'999), why);
  EXPECT_EQ(error_of(gzip(text), 1), why);
  EXPECT_EQ(error_of(gzip(text), 0), why);
  EXPECT_EQ(error_of(gzip(text) + gzip("x"), 100'000), why);
  EXPECT_EQ(error_of(gzip(text), 100'000), "no error");
  EXPECT_EQ(error_of(text, 10), "no error");  // not compressed: no limit
  EXPECT_GT(default_max_inflated_bytes(), uint64_t{1} << 20);
}

TEST_F(ByteSourceTest, RefusesWhatInflatesBeyondReason) {
  EXPECT_EQ(error_of(gzip(std::string(50'000'000, '\0')), UINT64_MAX - 1),
            "inflates to more than 250 times its size, which no snapshot does");
}

TEST_F(ByteSourceTest, NoticesGzipThatIsCutOff) {
  const std::string whole = gzip(random_text(5'000));
  for (size_t bytes = 2; bytes < whole.size(); bytes += bytes < 30 ? 1 : 97) {
    EXPECT_EQ(error_of(whole.substr(0, bytes)), "is a truncated gzip file") << bytes;
  }
  EXPECT_EQ(error_of(whole.substr(0, whole.size() - 1)), "is a truncated gzip file");
  EXPECT_EQ(error_of(whole + whole.substr(0, 40)), "is a truncated gzip file");
}

TEST_F(ByteSourceTest, NoticesDamagedGzip) {
  std::string damaged = gzip(random_text(5'000));
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
  EXPECT_NE(error_of(damaged).find("gzip file"), std::string::npos);
  std::string wrong_sum = gzip("some text");
  wrong_sum[wrong_sum.size() - 8] = static_cast<char>(wrong_sum[wrong_sum.size() - 8] ^ 1);
  EXPECT_EQ(error_of(wrong_sum), "is a damaged gzip file");
  EXPECT_EQ(error_of("\x1f\x8b rubbish that goes on and on"), "is a damaged gzip file");
  EXPECT_EQ(error_of(gzip("text") + "rubbish"),
            "has bytes after its gzip data that are not gzip; it may be damaged");
  EXPECT_EQ(error_of(gzip("")), "is empty after inflating");
}

TEST_F(ByteSourceTest, ExplainsWhatIsNoFile) {
  EXPECT_EQ(error_of(""), "is empty");
  const auto message_of = [](const std::string& file) {
    const Result<ByteSource> source = open_bytes(file);
    return source ? "no error" : source.error().message;
  };
  EXPECT_EQ(message_of(path("nowhere")),
            path("nowhere") + " cannot be opened: No such file or directory");
  EXPECT_EQ(message_of(path("")), path("") + " is a directory, not a regular file");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of(path("pipe")), path("pipe") + " is a pipe, not a regular file");
  EXPECT_EQ(message_of("/dev/null"), "/dev/null is a device, not a regular file");
  std::filesystem::create_symlink(write("target", "text"), path("link"));
  EXPECT_EQ(message_of(path("link")), "no error");
}

TEST_F(ByteSourceTest, MovesWithItsBytes) {
  Result<ByteSource> plain = open_bytes(write("plain", "text"));
  Result<ByteSource> inflated = open_bytes(write("x.gz", gzip("inflated")));
  ASSERT_TRUE(plain.ok() && inflated.ok());
  const uint8_t* const address = plain->bytes().data();
  ByteSource moved = std::move(*plain);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_TRUE(plain->bytes().empty());
  moved = std::move(*inflated);
  EXPECT_EQ(text_of(moved), "inflated");
  EXPECT_TRUE(inflated->bytes().empty());
  moved = ByteSource();
  EXPECT_TRUE(moved.bytes().empty());
}

}  // namespace
}  // namespace tidemark
