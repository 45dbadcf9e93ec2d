// SPDX-License-Identifier: Apache-2.0
#include "remat/core/graph_text.h"

#include <gtest/gtest.h>

#include <random>

#include "remat/core/error.h"
#include "remat/core/graph_builder.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"

namespace remat {
namespace graph_text_test {

constexpr std::string_view kSmall = R"(remat-graph 1
external w1 2359296 param
external x 602112 input
external g1 256 param
external b1 256 param
external rm1 256 buffer
external rv1 256 buffer
op conv1 forward kind=aten::convolution time_ns=812000 workspace=65536 reads=x,w1 creates=a1:3211264
op bn1 forward kind=aten::native_batch_norm time_ns=90000 reads=a1,g1,b1 creates=a2:3211264,m1:256,v1:256 effects=rm1,rv1 scope=layer1.bn
op relu1 forward kind=aten::relu_ time_ns=40000 updates=a2
op drop1 forward kind=aten::bernoulli_.float time_ns=500 creates=mask:64 random
op loss forward kind=aten::sum time_ns=10 reads=a2,mask creates=loss:4
op da backward kind=aten::expand time_ns=10 reads=loss creates=da:3211264
op bwd_relu1 backward kind=aten::threshold_backward time_ns=51000 reads=da,a2 creates=da2:3211264 reuse=da2<da
op reduce backward kind=c10d::allreduce_ time_ns=51000 updates=da2 once
output loss
output da2
)";

// What a bad text must say: the line it is on and a phrase of the message.
struct BadText {
  std::string text;
  int line;
  std::string phrase;
};

std::string error_of(std::string_view text) {
  try {
    parse_graph(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string op_line(const std::string& rest) {
  return "remat-graph 1\nexternal x 8 input\nop a forward kind=k time_ns=1 creates=s:8\nop b forward " +
         rest + "\n";
}

// Two ops and what the rest says.
std::string moves_text(const std::string& rest) {
  return "remat-graph 1\nexternal x 8 input\nop a forward kind=k time_ns=1 reads=x creates=s:8,t:8,u:8\n"
         "op b forward kind=k time_ns=1 reads=s,t,t creates=v:8\nop c forward kind=k time_ns=1 updates=t\n"
         "op d forward kind=k time_ns=1 reads=s creates=w:8 random\n" +
         rest + "\n";
}

TEST(GraphText, PrintsWhatItParses) {
  EXPECT_EQ(print_graph(parse_graph(kSmall)), kSmall);
  EXPECT_EQ(print_graph(parse_graph(testing::kMovingStepGraph)), testing::kMovingStepGraph);
}

TEST(GraphText, ParsesWhatItPrintsOnRandomGraphs) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    EXPECT_EQ(parse_graph(print_graph(graph)), graph) << "seed " << seed;
  }
}

TEST(GraphText, ParsesWhatItPrintsOfMoves) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 generator(seed);
    Graph graph = testing::random_graph(generator);
    testing::add_random_moves(generator, graph);
    EXPECT_EQ(parse_graph(print_graph(graph)), graph) << "seed " << seed;
  }
}

TEST(GraphText, ReadsPackedFormsAndTheChannel) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  ASSERT_EQ(graph.packed_forms.size(), 2u);
  const PackedForm& mask = graph.packed_forms[0];
  EXPECT_EQ(graph.storage(mask.storage).name, "m");
  EXPECT_EQ(mask.rule, "two_values");
  EXPECT_EQ(mask.bytes, 2);
  EXPECT_EQ(mask.pack_ns, 3);
  EXPECT_EQ(mask.unpack_ns, 4);
  EXPECT_TRUE(mask.readers.empty());
  const PackedForm& sign = graph.packed_forms[1];
  EXPECT_FALSE(sign.unpack_ns);
  ASSERT_EQ(sign.readers.size(), 1u);
  EXPECT_EQ(graph.op(sign.readers[0]).name, "b5");
  EXPECT_EQ(graph.channel, (ChannelModel{.write_bytes_per_s = 2'000'000'000,
                                    .read_bytes_per_s = 4'000'000'000,
                                    .latency_ns = 5,
                                    .alignment = 128}));
}

// In any order of keys, the channel anywhere, externals and outputs after packed forms too.
TEST(GraphText, LinesOfMovesMayStandInAnyOrder) {
  const Graph graph = parse_graph(
      "remat-graph 1\nchannel latency_ns=1 read_bytes_per_s=3 write_bytes_per_s=2\n"
      "op a forward kind=k time_ns=1 creates=s:8\nop b forward kind=k time_ns=1 reads=s creates=t:8\n"
      "packed s readers=b unpack_ns=3 pack_ns=2 bytes=1 rule=bits\noutput t\nexternal x 4 input\n");
  EXPECT_EQ(print_graph(graph),
            "remat-graph 1\nexternal x 4 input\nop a forward kind=k time_ns=1 creates=s:8\n"
            "op b forward kind=k time_ns=1 reads=s creates=t:8\noutput t\n"
            "packed s rule=bits bytes=1 pack_ns=2 unpack_ns=3 readers=b\n"
            "channel write_bytes_per_s=2 read_bytes_per_s=3 latency_ns=1\n");
  EXPECT_EQ(parse_graph(print_graph(graph)), graph);
}

TEST(GraphText, VersionsCountUpdates) {
  const Graph graph = parse_graph(kSmall);
  const Op& relu = graph.ops[2];
  const Op& loss = graph.ops[4];
  ASSERT_EQ(relu.updates.size(), 1u);
  EXPECT_EQ(relu.updates[0].version, 0);
  EXPECT_EQ(loss.reads[0].storage, relu.updates[0].storage);
  EXPECT_EQ(loss.reads[0].version, 1);
}

TEST(GraphText, EffectsCountAsVersionsOfExternals) {
  const Graph graph = parse_graph(kSmall);
  EXPECT_EQ(graph.storages[4].name, "rm1");
  EXPECT_EQ(graph.last_version(static_cast<StorageId>(4)), 1);
  EXPECT_EQ(graph.last_version(static_cast<StorageId>(0)), 0);
}

TEST(GraphText, RolesFollowFromUse) {
  const Graph graph = parse_graph(kSmall);
  const auto role = [&](std::string_view storage) {
    for (const Storage& s : graph.storages) {
      if (s.name == storage) return s.role;
    }
    throw std::logic_error("no such storage");
  };
  EXPECT_EQ(role("a1"), Role::temporary);   // nothing after bn1 needs it
  EXPECT_EQ(role("a2"), Role::activation);  // bwd_relu1 reads it
  EXPECT_EQ(role("da"), Role::temporary);
  EXPECT_EQ(role("da2"), Role::gradient);  // made in backward, survives
  EXPECT_EQ(role("loss"), Role::activation);
  EXPECT_EQ(role("rm1"), Role::buffer);
}

TEST(GraphText, ExternalsMayStandBetweenOpsAndAreNumberedFirst) {
  const Graph mixed = parse_graph(
      "remat-graph 1\nop a forward kind=k time_ns=1 creates=s:8\nexternal x 4 input\n"
      "op b forward kind=k time_ns=1 reads=s,x creates=t:8\noutput t\n");
  EXPECT_EQ(mixed.external_count, 1u);
  EXPECT_EQ(mixed.storages[0].name, "x");
  EXPECT_EQ(parse_graph(print_graph(mixed)), mixed);
}

TEST(GraphText, SkipsCommentsBlankLinesAndCarriageReturns) {
  const Graph graph = parse_graph(
      "# a comment\r\n\n  \t\nremat-graph 1\r\n  # another\nexternal x 4 input\r\n\r\n");
  EXPECT_EQ(graph.storages.size(), 1u);
  EXPECT_EQ(graph.storages[0].role, Role::input);
}

TEST(GraphText, EveryMistakeIsAnErrorWithItsLine) {
  const std::string head = "remat-graph 1\n";
  const std::vector<BadText> texts = {
      {"", 1, "expected the header 'remat-graph 1'"},
      {"# only a comment\n", 2, "expected the header"},
      {"remat-graph 2\n", 1, "found 'remat-graph 2'"},
      {"remat-graph 1 extra\n", 1, "expected the header"},
      {std::string("\x7f" "ELF\0\x01\x02", 7), 1, "expected the header"},
      {head + "storage x 4\n", 2, "external, op, output"},
      {head + "external x 4\n", 2, "four words"},
      {head + "external x four input\n", 2, "'four'; expected a whole number"},
      {head + "external x -4 input\n", 2, "expected a whole number, zero or more"},
      {head + "external x 9223372036854775808 input\n", 2, "does not fit into 64 bits"},
      {head + "external x 9223372036854775807 input\n", 2, "expected at most"},
      {head + "external x 4.5 input\n", 2, "expected a whole number"},
      {head + "external x 4 weight\n", 2, "unknown role 'weight'"},
      {head + "external x 4 input\nexternal x 4 input\n", 3, "declared twice"},
      {head + "external a,b 4 input\n", 2, "not allowed"},
      {head + "external a 9007199254740991 input\nexternal b 1 input\n", 3, "sum of all bytes"},
      {head + "output y\n", 2, "'y', which no earlier line declares"},
      {head + "external x 4 input\noutput x\noutput x\n", 4, "is an output already"},
      {head + "output\n", 2, "two words"},
      {head + "op a\n", 2, "op line ends early"},
      {op_line(""), 4, "has no kind="},
      {head + "op a sideways kind=k time_ns=1\n", 2, "unknown phase 'sideways'"},
      {op_line("time_ns=1"), 4, "has no kind="},
      {op_line("kind=k"), 4, "has no time_ns="},
      {op_line("kind=k time_ns=1 size=3"), 4, "unknown key 'size'"},
      {op_line("kind=k time_ns=1 reads"), 4, "has no value"},
      {op_line("kind=k time_ns=1 reads="), 4, "has no value"},
      {op_line("kind=k time_ns=1 kind=k"), 4, "'kind' is given twice"},
      {op_line("kind=k time_ns=1 random random"), 4, "given twice"},
      {op_line("kind=k time_ns=-1"), 4, "zero or more"},
      {op_line("kind=k time_ns=99999999999999999999"), 4, "does not fit"},
      {op_line("kind=k time_ns=1 reads=x,,s"), 4, "empty element"},
      {op_line("kind=k time_ns=1 reads=later"), 4, "'later', which no earlier line"},
      {op_line("kind=k time_ns=1 updates=s,s"), 4, "twice"},
      {op_line("kind=k time_ns=1 creates=s:8"), 4, "exists already"},
      {op_line("kind=k time_ns=1 creates=t:8,t:8"), 4, "twice"},
      {op_line("kind=k time_ns=1 creates=t"), 4, "expected <storage>:<bytes>"},
      {op_line("kind=k time_ns=1 creates=t:"), 4, "expected a whole number"},
      {op_line("kind=k time_ns=1 creates=t:8:9"), 4, "expected <storage>:<bytes>"},
      {op_line("kind=k time_ns=1 creates=:8"), 4, "empty storage"},
      {op_line("kind=k time_ns=1 reads=s creates=s2:8 reads=x"), 4, "'reads' is given twice"},
      {op_line("kind=k time_ns=1 effects=s"), 4, "expected an external"},
      {op_line("kind=k time_ns=1 updates=x effects=x"), 4, "both updates and effects"},
      {op_line("kind=k time_ns=1 reads=s creates=t:8 reuse=t"), 4, "in reuse="},
      {op_line("kind=k time_ns=1 reads=s creates=t:8 reuse=s<s"), 4, "does not create"},
      {op_line("kind=k time_ns=1 creates=t:8 reuse=t<s"), 4, "expected a storage that this op reads"},
      {op_line("kind=k time_ns=1") + "op a forward kind=k time_ns=1\n", 5, "'a' is given twice"},
  };
  for (const BadText& bad : texts) {
    const std::string message = error_of(bad.text);
    EXPECT_NE(message.find("[parse_graph] line " + std::to_string(bad.line) + ": "),
              std::string::npos)
        << bad.text << "\ngave: " << message;
    EXPECT_NE(message.find(bad.phrase), std::string::npos) << bad.text << "\ngave: " << message;
  }
}

TEST(GraphText, EveryMistakeInALineOfMovesIsAnErrorWithItsLine) {
  const std::string good = "rule=r bytes=1 pack_ns=1 unpack_ns=1";
  const std::string packed = "packed s rule=r bytes=1 pack_ns=1 ";
  const std::string channel = "channel write_bytes_per_s=1 read_bytes_per_s=1 latency_ns=1";
  const auto text = [](const std::string& line) { return moves_text(line); };
  ASSERT_EQ(error_of(text(packed + "unpack_ns=1 readers=b")), "no error");
  ASSERT_EQ(error_of(text(channel)), "no error");
  const std::vector<BadText> texts = {
      {text("packed"), 7, "packed line ends early; expected packed <storage> rule=<name> bytes=<int>"},
      {text("packed s"), 7, "no rule=; expected packed <storage>"},
      {text("packed s bytes=1 pack_ns=1 unpack_ns=1"), 7, "no rule="},
      {text("packed s rule=r pack_ns=1 unpack_ns=1"), 7, "no bytes="},
      {text("packed s rule=r bytes=1 unpack_ns=1"), 7, "no pack_ns="},
      {text(packed), 7, "packed 's' has no unpack_ns= and no readers=; expected one of them"},
      {text("packed s rule bytes=1"), 7, "expected <key>=<value>"},
      {text("packed s rule= bytes=1"), 7, "key 'rule' has no value; expected one"},
      {text(packed + "unpack_ns=1 rule=q"), 7, "key 'rule' is given twice"},
      {text(packed + "unpack_ns=1 level=9"), 7, "unknown key 'level'; expected packed <storage>"},
      {text("packed s rule=r bytes=x pack_ns=1"), 7, "bytes is 'x'; expected a whole number"},
      {text("packed s rule=r bytes=-1 pack_ns=1"), 7, "expected a whole number, zero or more"},
      {text("packed s rule=r bytes=1 pack_ns=1.5"), 7, "pack_ns is '1.5'; expected a whole number"},
      {text(packed + "unpack_ns=soon"), 7, "unpack_ns is 'soon'; expected a whole number"},
      {text("packed s rule=r bytes=1 pack_ns=9223372036854775807 unpack_ns=1"), 7, "expected at most"},
      {text("packed s rule=r bytes=1 pack_ns=9007199254740991 unpack_ns=1"), 7, "sum of all times"},
      {text("packed later " + good), 7, "packed names storage 'later', which no earlier line"},
      {text("packed x " + good), 7, "packed names 'x', an external; expected a storage that the step creates"},
      {text("packed u " + good), 7, "'u', which no op reads at its last version"},  // never read
      {text("packed t " + good), 7, "'t', which no op reads at its last version"},  // updated since
      {text("packed s " + good) + "packed s " + good + "\n", 8, "'s' has a packed form already; expected one"},
      {text("packed s rule=r bytes=8 pack_ns=1 unpack_ns=1"), 7, "takes 8 bytes; expected less than its 8"},
      {text(packed + "readers=b,b"), 7, "readers names 'b' twice; expected once"},
      {text(packed + "readers=b,,d"), 7, "empty element"},
      {text(packed + "readers=nobody"), 7, "readers names op 'nobody'; expected an op of the graph"},
      {text(packed + "readers=a"), 7, "'a', which does not read 's' at version 0; expected that it does, once"},
      {text(packed + "readers=d"), 7, "'d', which is random or changes something"},
      {text("packed s " + good) + "op e forward kind=k time_ns=1 reads=s\n", 8,
       "op 'e' comes after a packed form; expected ops first"},
      {text("channel"), 7, "no write_bytes_per_s=; expected channel write_bytes_per_s=<int>"},
      {text("channel write_bytes_per_s=1 latency_ns=1"), 7, "no read_bytes_per_s="},
      {text("channel write_bytes_per_s=1 read_bytes_per_s=1"), 7, "no latency_ns="},
      {text(channel + " width=3"), 7, "unknown key 'width'; expected channel"},
      {text(channel + " latency_ns=1"), 7, "key 'latency_ns' is given twice"},
      {text(channel + " alignment="), 7, "key 'alignment' has no value"},
      {text(channel + " fast"), 7, "expected <key>=<value>"},
      {text("channel write_bytes_per_s=0 read_bytes_per_s=1 latency_ns=1"), 7, "carries 0 bytes per second"},
      {text("channel write_bytes_per_s=1 read_bytes_per_s=0 latency_ns=1"), 7, "expected one or more"},
      {text("channel write_bytes_per_s=1 read_bytes_per_s=9223372036854775807 latency_ns=1"), 7,
       "bytes per second is 9223372036854775807; expected at most"},
      {text("channel write_bytes_per_s=1 read_bytes_per_s=1 latency_ns=9223372036854775807"), 7,
       "latency_ns is 9223372036854775807; expected at most"},
      {text(channel + " alignment=0"), 7, "alignment is 0; expected a power of two up to 1048576"},
      {text(channel + " alignment=96"), 7, "alignment is 96; expected a power of two"},
      {text(channel + " alignment=2097152"), 7, "alignment is 2097152; expected a power of two up to"},
      {text(channel + " alignment=9223372036854775807"), 7, "expected a power of two"},
      {text(channel) + channel + "\n", 8, "a second channel; expected one"},
      {"remat-graph 1\nexternal a~ 4 input\n", 2, "not allowed"},
      {"remat-graph 1\nop a forward kind=k time_ns=1 creates=s^:8\n", 2, "not allowed"},
  };
  for (const BadText& bad : texts) {
    const std::string message = error_of(bad.text);
    EXPECT_NE(message.find("[parse_graph] line " + std::to_string(bad.line) + ": "), std::string::npos)
        << bad.text << "\ngave: " << message;
    EXPECT_NE(message.find(bad.phrase), std::string::npos) << bad.text << "\ngave: " << message;
  }
}

// t is read twice by b: which of the two would be the packed bytes?
TEST(GraphText, AReaderReadsTheValueOnce) {
  const std::string text = moves_text("packed t rule=r bytes=1 pack_ns=1 readers=b");
  const std::string read_later = text.substr(0, text.find("op c ")) +
                                 text.substr(text.find("packed t"));
  EXPECT_NE(error_of(read_later).find("'b', which does not read 't' at version 0; expected that it does, once"),
            std::string::npos)
      << error_of(read_later);
}

TEST(GraphText, HugeLinesGiveShortErrors) {
  const std::string junk(10'000'000, 'z');
  EXPECT_LT(error_of(junk).size(), 300u);
  EXPECT_LT(error_of("remat-graph 1\n" + junk).size(), 300u);
  EXPECT_LT(error_of("remat-graph 1\nexternal " + junk + " -1 input").size(), 300u);
  EXPECT_LT(error_of("remat-graph 1\nop a forward kind=k time_ns=1 reads=" + junk).size(), 300u);
  for (const std::string start : {"packed ", "packed s rule=", "packed s ", "packed s bytes=", "channel ",
                                  "channel latency_ns=", "packed s rule=r bytes=1 pack_ns=1 readers="}) {
    EXPECT_LT(error_of("remat-graph 1\nop a forward kind=k time_ns=1 creates=s:8\n"
                       "op b forward kind=k time_ns=1 reads=s\n" + start + junk).size(), 400u) << start;
  }
}

TEST(GraphText, ALineOfAMillionReadsIsFine) {
  std::string text = "remat-graph 1\nexternal x 4 input\nop a forward kind=k time_ns=1 reads=x";
  for (int i = 0; i < 1'000'000; ++i) text += ",x";
  EXPECT_EQ(parse_graph(text).ops[0].reads.size(), 1'000'001u);
}

TEST(GraphBuilder, IsUnchangedByAFormThatIsRefused) {
  GraphBuilder builder;
  builder.op({.name = "a", .kind = "k", .creates = {{"s", 8}}});
  builder.op({.name = "b", .kind = "k", .reads = {"s"}, .creates = {{"t", 8}}});
  EXPECT_THROW(builder.packed({.storage = "s", .rule = "r", .bytes = 1, .readers = {"b", "nobody"}}), Error);
  EXPECT_THROW(builder.channel({.write_bytes_per_s = 1, .read_bytes_per_s = 1, .alignment = 3}), Error);
  builder.op({.name = "c", .kind = "k", .reads = {"s"}});  // ops may still come
  builder.packed({.storage = "s", .rule = "r", .bytes = 1, .readers = {"b"}});
  builder.channel({.write_bytes_per_s = 1, .read_bytes_per_s = 1});
  const Graph graph = std::move(builder).build();
  EXPECT_EQ(graph.packed_forms.size(), 1u);
  EXPECT_TRUE(graph.channel);
}

TEST(GraphBuilder, IsUnchangedByAnOpThatIsRefused) {
  GraphBuilder builder;
  builder.external("x", 4, Role::input);
  OpSpec bad{.name = "a", .kind = "k", .reads = {"x"}, .creates = {{"s", 4}, {"s", 4}}};
  EXPECT_THROW(builder.op(bad), Error);
  bad.creates.pop_back();
  builder.op(bad);
  EXPECT_EQ(std::move(builder).build().ops.size(), 1u);
}

}  // namespace graph_text_test
}  // namespace remat
