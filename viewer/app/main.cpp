// tidemark-view: shows a trace in a window, or draws it into a picture.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "collector/output_guard.h"
#include "viewer/app/headless.h"
#include "viewer/app/shell.h"
#include "viewer/app/window.h"

namespace tidemark::view {

namespace {

struct Options {
  std::vector<std::string> paths;
  bool follow = false;
  std::string picture;
  StartView start;
  std::string size;
  std::string theme;
  float scale = 0;
  int frames = 0;
};

int fail(const std::string& message) {
  fmt::print(stderr, "tidemark-view: {}\n", message);
  return 2;
}

bool parse_size(const std::string& text, int& width, int& height) {
  const char* end = text.data() + text.size();
  const auto [x, first] = std::from_chars(text.data(), end, width);
  if (first != std::errc() || x == end || *x != 'x') return false;
  const auto [last, second] = std::from_chars(x + 1, end, height);
  return second == std::errc() && last == end && width >= 160 && height >= 120 && width <= 16384 &&
         height <= 16384;
}

int draw_picture(const Options& options, int width, int height) {
  if (options.paths.empty()) return fail("--screenshot needs the PATH of a trace");
  if (const Status s = check_output(options.picture, options.paths); !s) {
    return fail(s.error().message);
  }
  const auto model = load_model(options.paths.back());
  if (!model) return fail(model.error().message);
  need_characters((*model)->characters);
  const auto headless = Headless::create(width, height, options.theme != "light",
                                         options.scale > 0 ? options.scale : 1);
  if (!headless) return fail(headless.error().message);
  Shell shell((Config()));
  shell.panels().be_patient();
  shell.selection().be_patient();
  shell.set_model(*model);
  if (options.paths.size() > 1) {
    const auto before = load_model(options.paths.front());
    if (!before) return fail(before.error().message);
    shell.selection().go_to_peak(**model);
    shell.set_other(*before);
  }
  if (!options.start.panel.empty()) shell.show_only(options.start.panel);
  Status started = go_to_start(options.start, **model, shell.selection());
  if (started) {
    started = choose_steps(options.start, **model, shell.selection(), shell.panels().stack.options);
  }
  if (!started) return fail(started.error().message);
  if (options.start.panel == "block") {
    // To have a block to show, choose the largest.
    const Moment& moment = shell.selection().cursor.moment(**model);
    for (const uint32_t i : moment.state.live) {
      const auto& all = (*model)->lanes[moment.lane].memory->allocations;
      auto& chosen = shell.selection().highlights.allocation;
      if (!chosen || all[i].block_bytes > all[*chosen].block_bytes) chosen = i;
    }
  }
  const Image image = (*headless)->render([&] { shell.draw(); });
  if (const Status s = write_png(image, options.picture); !s) return fail(s.error().message);
  return 0;
}

int run(const Options& options) {
  int width = options.picture.empty() ? 1440 : 1600;
  int height = options.picture.empty() ? 900 : 1000;
  if (!options.size.empty() && !parse_size(options.size, width, height)) {
    return fail("--size takes WIDTHxHEIGHT from 160x120 to 16384x16384, such as 1600x900, not '" +
                options.size + "'");
  }
  if (const Status s = check_start(options.start); !s) return fail(s.error().message);
  if (!options.picture.empty()) return draw_picture(options, width, height);
  Config config = Config::load();
  if (!options.theme.empty()) config.dark = options.theme != "light";
  return run_window(
      {options.paths, options.start, options.follow, width, height, options.scale, options.frames},
      std::move(config));
}

// CLI11 would write "[PATH(0x)]".
class HelpText : public CLI::Formatter {
  std::string make_option_usage(const CLI::Option*) const override { return "[PATH [PATH]]"; }
};

}  // namespace

}  // namespace tidemark::view

int main(int argc, char** argv) {
  using tidemark::view::Options;
  Options options;
  CLI::App app("Shows where a GPU job's memory went, over time and by line of code.",
               "tidemark-view");
  app.formatter(std::make_shared<tidemark::view::HelpText>());
  app.set_version_flag("--version", std::string("tidemark-view " TIDEMARK_VERSION));
  app.add_option(
         "PATH", options.paths,
         "trace, directory of traces, or PyTorch snapshot; of two, the second is shown, with what "
         "changed since the first")
      ->expected(0, 2);
  app.add_flag("--follow", options.follow, "reload the trace as it grows");
  app.add_option("--screenshot", options.picture,
                 "draw into this PNG file and exit; needs no display");
  app.add_option("--panel", options.start.panel,
                 "panel to bring to the front, or to draw alone into a screenshot: " +
                     tidemark::view::Panels::names() +
                     "; words after colons choose how it is drawn, see below");
  app.add_option("--size", options.size, "size of the window or picture, such as 1600x900");
  app.add_option("--theme", options.theme, "dark or light")
      ->check(CLI::IsMember({"dark", "light"}));
  app.add_option("--time", options.start.time,
                 "cursor position: peak, oom, or a time since the start (1.5s, 20ms); or the time "
                 "to show, such as 20ms..1.5s");
  app.add_option("--rank", options.start.rank, "rank to select");
  app.add_option("--steps", options.start.steps,
                 "two steps to compare in the stack, by their numbers, such as 3,7");
  app.add_option("--search", options.start.search, "highlight what contains this text");
  app.add_option("--scale", options.scale, "scale of text and controls; 2 for a 4K screen")
      ->check(CLI::Range(0.5F, 4.0F));
  app.add_option("--frames", options.frames, "close after this many frames (for tests)")->group("");
  app.footer("Panels, and words that may follow them, such as stack:line:events:\n" +
             tidemark::view::Panels::names_and_ways() +
             "\n\nExamples:\n"
             "  tidemark-view run.tmk\n"
             "  tidemark-view before.tmk after.tmk\n"
             "  tidemark-view --follow out/\n"
             "  tidemark-view snapshot.pickle.gz --screenshot peak.png --panel map --time peak");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  // Only the stack shows steps.
  if (!options.start.steps.empty() && options.start.panel.empty()) options.start.panel = "stack";
  return tidemark::view::run(options);
}
