// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace remat::testing {

// One step with every kind of move: m can be packed and unpacked; r, at version 1, can be packed for b5,
// which reads the packed bytes; m, a, r, g5 and g3 can be offloaded. s, l and g2 cannot: a transfer of s
// takes 5 ns and its latency as long, and nobody reads the outputs l (but b5, 1 byte) and g2.
inline constexpr std::string_view kMovingStepGraph = R"(remat-graph 1
external x 4 input
op f1 forward kind=k time_ns=10 reads=x creates=m:64
op f2 forward kind=k time_ns=20 reads=m creates=a:100
op f3 forward kind=k time_ns=30 reads=a creates=r:40
op f4 forward kind=k time_ns=5 reads=r creates=s:10
op relu forward kind=k time_ns=5 updates=r
op f5 forward kind=k time_ns=40 reads=r,s creates=l:1
op b5 backward kind=k time_ns=40 workspace=7 reads=l,r creates=g5:40
op b3 backward kind=k time_ns=30 reads=g5,a creates=g3:40 reuse=g3<g5,g3<a
op b2 backward kind=k time_ns=20 reads=g3,m creates=g2:10
output l
output g2
packed m rule=two_values bytes=2 pack_ns=3 unpack_ns=4
packed r rule=sign bytes=5 pack_ns=2 readers=b5
channel write_bytes_per_s=2000000000 read_bytes_per_s=4000000000 latency_ns=5 alignment=128
)";

// m is packed from f2 to b2, r from f5 to b5, a is away from f3 to b3.
inline constexpr std::string_view kMovingStepSchedule = R"(remat-schedule 1
run f1 reads=x creates=m
run f2 reads=m creates=a
pack m reads=m creates=m~
free m
run f3 reads=a creates=r
offload a reads=a creates=a^
run f4 reads=r creates=s
run relu updates=r
run f5 reads=r,s creates=l
free s
pack r reads=r creates=r~
free r
free a
run b5 reads=l,r~ creates=g5
free r~
prefetch a reads=a^ creates=a#1
free a^
run b3 reads=g5,a#1 creates=g3 reuse=g3<g5
free a#1
unpack m reads=m~ creates=m#1
free m~
run b2 reads=g3,m#1 creates=g2
free g3
free m#1
)";
// Externals 4, f1 4+64=68, f2 68+100=168, pack m 168+2=170; without m 106, f3 146, f4 156, f5 157.
inline constexpr int kMovingStepPeakBytes = 170;

}  // namespace remat::testing
