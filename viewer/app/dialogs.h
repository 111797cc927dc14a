// The windows that open above the panels.
#pragma once

#include <functional>

#include "viewer/panels/dialogs/export_panel.h"
#include "viewer/panels/dialogs/open_panel.h"

namespace tidemark::view {

struct Dialogs {
  OpenPanel open;
  bool open_second = false;  // the file to open is for comparison with the one that is shown
  ExportPanel exporter;
  bool help = false;
  // The browser's own dialog instead of the panel; empty: there is none.
  std::function<void(bool second)> ask_browser;

  void ask_for_file(bool second) {
    if (ask_browser) return ask_browser(second);
    open_second = second;
    open.show();
  }
  bool visible() const { return help || open.visible() || exporter.visible(); }
  void close() {
    help = false;
    open.close();
    exporter.close();
  }
};

}  // namespace tidemark::view
