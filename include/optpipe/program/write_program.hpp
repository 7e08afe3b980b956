#pragma once

#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <ostream>
#include <string>

namespace optpipe {

/// An instruction as text, such as "receive of 0F3 from rank 0, send of 1I2 to rank 0".
[[nodiscard]] inline std::string describe(const rank_program& p, const instruction& i) {
    if (i.kind != instruction_kind::exchange || i.parts == 0) return to_string(label_of(p, i));
    std::string text;
    for (std::size_t k = 0; k < i.parts; ++k)
        text.append(k == 0 ? "" : ", ").append(to_string(label_of(p.parts[i.first_part + k])));
    return text;
}

/// Writes one line per instruction in the order of issue: lane, waits, action, and recorded marker.
inline void write_program(std::ostream& out, const rank_program& p) {
    out << "rank " << p.self.value() << ": " << p.instructions.size() << " instructions, " << p.markers
        << " markers; bytes: " << p.device_bytes << " device, " << p.host_bytes << " host, " << p.message_bytes
        << " messages\n";
    for (std::size_t n = 0; n < p.instructions.size(); ++n) {
        const auto& i = p.instructions[n];
        out << "  " << n << "  [" << spelling(p.lanes[i.lane]) << "] ";
        for (std::size_t w = 0; w < i.waits; ++w)
            out << "wait m" << p.waits[i.first_wait + w].value() << ", ";
        out << describe(p, i);
        if (i.records != no_marker) out << ", record m" << i.records.value();
        out << '\n';
    }
}

} // namespace optpipe
