// The two forms of a written trace. write_trace() chooses by the name of the file. Read next:
// models/trace/trace_view.hpp.
#pragma once

#include <string>

#include "models/trace/trace.hpp"
#include "models/trace/trace_file.hpp"
#include "models/trace/trace_view.hpp"

namespace motley {

// Chrome trace JSON, one event on each line; everything that it draws is also exact in the args. The reader's table is
// in trace_read.cpp.
void write_chrome_trace(const Trace& trace, const Program& program, const TraceView& view, TraceFile& file);

// Perfetto's protobuf. The Program and what only motley reads are not in it.
void write_perfetto_trace(const Trace& trace, const Program& program, const TraceView& view, TraceFile& file);

// What `--trace` says of its file in the help of a command.
inline constexpr const char* kTraceHelp =
    "write a trace for viewers (ui.perfetto.dev) and motley compare: FILE.json, FILE.json.gz, or for viewers "
    "alone "
    "FILE.pftrace";

// The version of libprotobuf; empty: this program was built without.
std::string protobuf_version();
// Throws Refusal("missing-part") if the path names a form that this program cannot write. `version` is
// protobuf_version().
void require_trace_form(const std::string& path, const std::string& version);

}  // namespace motley
