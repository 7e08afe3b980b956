#pragma once

#include "optpipe/core/standard.hpp"

#include <string_view>

namespace optpipe::detail {

/// The page's style sheet, except for the colours of kinds (`palette_style`). The script reads its colours from the
/// variables.
inline constexpr std::string_view html_style = R"css(
:root {
  color-scheme: light;
  --page: #fbfbfc; --panel: #ffffff; --text: #1d2430; --faint: #6b7482; --line: #dfe3e8; --lane: #f1f3f6;
  --memory: #c9d3e2; --memory-line: #5c6f8c; --host: #e0d4ec; --host-line: #8c66ad; --limit: #c62828;
  --mark: #111111; --accent: #2f62c4;
}
:root[data-theme="dark"] {
  color-scheme: dark;
  --page: #14171c; --panel: #1b1f26; --text: #e4e8ee; --faint: #97a1b0; --line: #323945; --lane: #232932;
  --memory: #34425a; --memory-line: #8aa3c9; --host: #40324f; --host-line: #b595d3; --limit: #ff6b60;
  --mark: #ffffff; --accent: #86abf5;
}
* { box-sizing: border-box; }
body { margin: 0; padding: 18px 22px; background: var(--page); color: var(--text);
       font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 22px 0 8px; }
header { display: flex; gap: 12px; align-items: flex-start; justify-content: space-between; }
button { font: inherit; font-size: 13px; color: var(--text); background: var(--panel); border: 1px solid var(--line);
         border-radius: 6px; padding: 3px 10px; cursor: pointer; }
button:hover { border-color: var(--accent); }
button[aria-pressed="true"] { background: var(--accent); border-color: var(--accent); color: var(--page); }
button:focus-visible, #chart:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
#facts { display: flex; flex-wrap: wrap; gap: 4px 26px; margin: 10px 0 14px; }
#facts div { white-space: nowrap; } #facts span { color: var(--faint); margin-right: 6px; }
#bar { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center; margin-bottom: 8px; }
#bar .gap { flex: 1; }
#legend { display: flex; flex-wrap: wrap; gap: 4px 14px; color: var(--faint); font-size: 13px; }
#legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 5px;
            vertical-align: -1px; }
#figure { border: 1px solid var(--line); border-radius: 8px; background: var(--panel); overflow: hidden; }
canvas { display: block; width: 100%; }
#map, #rows { touch-action: none; } #map { cursor: crosshair; border-bottom: 1px solid var(--line); }
#axis { border-bottom: 1px solid var(--line); }
#chart { overflow-y: auto; overflow-x: hidden; max-height: 74vh; }
#tip { position: fixed; z-index: 2; max-width: 340px; padding: 8px 11px; border-radius: 7px; pointer-events: none;
       background: var(--panel); color: var(--text); border: 1px solid var(--line); font-size: 13px;
       white-space: pre-line;
       box-shadow: 0 4px 18px rgba(0, 0, 0, .22); }
#tip::first-line { font-weight: 600; }
#storage, #idle { overflow-x: auto; }
#options { display: flex; flex-wrap: wrap; gap: 4px 14px; }
#options canvas { display: inline-block; width: 22px; height: 14px; margin-right: 5px; vertical-align: -2px; }
[hidden] { display: none !important; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: 2px 14px 2px 0; text-align: left; }
th { color: var(--faint); font-weight: 500; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg text { fill: var(--faint); font-size: 11px; }
.help { color: var(--faint); font-size: 12.5px; margin: 8px 0 0; }
)css";

} // namespace optpipe::detail
