// SPDX-License-Identifier: MIT
#include "sampleblk/descriptors.hpp"

namespace sampleblk {

DescriptorCall descriptor_call(std::string_view name) {
    static const std::map<std::string_view, DescriptorCall> calls = {
        {"open", DescriptorCall::open},       {"openat", DescriptorCall::openat},
        {"openat2", DescriptorCall::openat2}, {"creat", DescriptorCall::creat},
        {"close", DescriptorCall::close},     {"close_range", DescriptorCall::close_range},
        {"execve", DescriptorCall::exec},     {"execveat", DescriptorCall::exec},
        {"dup", DescriptorCall::dup},         {"dup2", DescriptorCall::dup},
        {"dup3", DescriptorCall::dup3},       {"fcntl", DescriptorCall::fcntl},
        {"fork", DescriptorCall::fork},       {"vfork", DescriptorCall::fork},
        {"clone", DescriptorCall::clone},     {"clone3", DescriptorCall::clone3},
        {"unshare", DescriptorCall::unshare},
    };
    const auto found = calls.find(name);
    return found == calls.end() ? DescriptorCall::none : found->second;
}

bool opens_with(DescriptorCall kind, std::uint64_t arg1, std::uint64_t arg2, std::uint64_t bits) {
    return kind == DescriptorCall::openat2 || (kind == DescriptorCall::open && (arg1 & bits) != 0) ||
           (kind == DescriptorCall::openat && (arg2 & bits) != 0);
}

}  // namespace sampleblk
