// SPDX-License-Identifier: MIT
// Profiles for other people's viewers.
#pragma once

#include <string>

#include "sampleblk/profile/profile.hpp"
#include "sampleblk/profile/stack_tree.hpp"

namespace sampleblk::profile {

// https://www.speedscope.app/file-format-schema.json: one profile a thread's name, its stacks by weight.
[[nodiscard]] std::string speedscope_json(const StackTree& tree, const std::string& title);

// pprof's proto/profile.proto, gzip-compressed as it must be: each stack with its thread's name as the label "thread".
[[nodiscard]] std::string pprof_profile(const StackTree& tree);

// A Perfetto trace with each selected sample at its time, on its thread: protos/perfetto/trace/profiling/
// {profile_packet,profile_common}.proto. Written to a file, for it grows with the samples. Throws SystemError.
void write_perfetto_samples(const Profile& profile, const SampleSelection& selection, const std::string& path);

}  // namespace sampleblk::profile
