// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace remat::testing {

// One training step with every feature of the format: in-place updates of internals and externals,
// random ops, effects, once ops, several results, workspace and reuse (of a dying input, of an
// external and of an output: the last two must never be taken).
inline constexpr std::string_view kSmallStepGraph = R"(remat-graph 1
external x 4 input
external w 4 param
external stat 1 buffer
op warm forward kind=aten::add_ time_ns=1 updates=stat
op conv forward kind=aten::convolution time_ns=8 workspace=2 reads=x,w creates=a:8
op relu forward kind=aten::relu_ time_ns=1 updates=a
op norm forward kind=aten::native_batch_norm time_ns=2 reads=a creates=b:8,mean:1 effects=stat
op drop forward kind=aten::native_dropout time_ns=2 reads=b creates=c:8,mask:2 reuse=c<b,mask<b random
op noise forward kind=aten::normal_functional time_ns=1 reads=x creates=n:4 reuse=n<x random
op loss forward kind=aten::sum time_ns=1 reads=c,n creates=l:1
op log forward kind=aten::item time_ns=1 reads=l once
op track forward kind=remat::track time_ns=1 reads=x effects=stat
op d_drop backward kind=aten::mul time_ns=2 reads=l,mask creates=gb:8 reuse=gb<l
op d_norm backward kind=aten::native_batch_norm_backward time_ns=4 reads=gb,a,mean creates=ga:8 reuse=ga<gb
op reduce backward kind=c10d::allreduce_ time_ns=9 updates=ga once
op step optimizer kind=aten::add_ time_ns=1 reads=ga updates=w
output l
output ga
)";

// A right schedule for it that recomputes a.
inline constexpr std::string_view kSmallStepSchedule = R"(remat-schedule 1
run warm updates=stat
run conv reads=x,w creates=a
run relu updates=a
run norm reads=a creates=b,mean
free a
run drop reads=b creates=c,mask reuse=c<b
run noise reads=x creates=n
run loss reads=c,n creates=l
free c
free n
run log reads=l
run track reads=x
run d_drop reads=l,mask creates=gb
free mask
recompute conv reads=x,w creates=a#1
recompute relu updates=a#1
run d_norm reads=gb,a#1,mean creates=ga reuse=ga<gb
free a#1
free mean
run reduce updates=ga
run step reads=ga updates=w
)";
// Externals 9, conv 9+8+2=19, norm 17+9=26, drop 18+2=20 (c in b's place), noise 24, loss 25,
// d_drop 13+8=21, the second conv 19+8+2=29, d_norm 27 (ga in gb's place).
inline constexpr int kSmallStepPeakBytes = 29;

}  // namespace remat::testing
