// SPDX-License-Identifier: MIT
// Pages and files made by hand, in either byte order and long size.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "file/bytes.hpp"
#include "file/page.hpp"

namespace sampleblk::trace::test {

class PageBuilder {
  public:
    PageBuilder(std::uint64_t time, PageLayout layout) : layout_(layout), swap_(swap_needed(layout.big_endian)) {
        bytes_.resize(layout.page_size);
        put<std::uint64_t>(0, time);
        at_ = layout.data_offset;
    }

    // A record of at most 112 bytes, a multiple of four.
    PageBuilder& record(std::uint32_t delta, const std::vector<std::byte>& data) {
        head(static_cast<std::uint32_t>(data.size() / 4), delta);
        return raw(data);
    }
    // A record whose length stands in a word of its own.
    PageBuilder& long_record(std::uint32_t delta, const std::vector<std::byte>& data) {
        head(0, delta);
        word(static_cast<std::uint32_t>(data.size()) + 4);
        return raw(data);
    }
    PageBuilder& time_extend(std::uint64_t delta) {
        head(30, static_cast<std::uint32_t>(delta & ((1U << 27) - 1)));
        word(static_cast<std::uint32_t>(delta >> 27));
        return *this;
    }
    PageBuilder& absolute(std::uint64_t time) {
        head(31, static_cast<std::uint32_t>(time & ((1U << 27) - 1)));
        word(static_cast<std::uint32_t>(time >> 27));
        return *this;
    }
    PageBuilder& discarded(std::uint32_t delta, std::uint32_t size) {
        head(29, delta);
        word(size + 4);
        at_ += size;
        return *this;
    }
    PageBuilder& rest_is_empty() {
        head(29, 0);
        at_ += 64;
        return *this;
    }
    PageBuilder& raw(const std::vector<std::byte>& data) {
        std::memcpy(bytes_.data() + at_, data.data(), data.size());
        at_ += data.size();
        return *this;
    }
    PageBuilder& missed(std::uint64_t count) {
        missed_ = count;
        return *this;
    }

    std::vector<std::byte> page() {
        std::uint64_t commit = at_ - layout_.data_offset;
        if (missed_ != 0) {
            commit |= PageWalker<false>::kMissedEvents | PageWalker<false>::kMissedStored;
            put_long(at_, missed_);
        }
        put_long(layout_.commit_offset, commit);
        return bytes_;
    }

    template <typename T>
    void put(std::size_t at, T value) {
        if (swap_) {
            value = byte_swap(value);
        }
        std::memcpy(bytes_.data() + at, &value, sizeof(T));
    }

  private:
    void put_long(std::size_t at, std::uint64_t value) {
        if (layout_.commit_size == 8) {
            put<std::uint64_t>(at, value);
        } else {
            put<std::uint32_t>(at, static_cast<std::uint32_t>(value));
        }
    }
    void head(std::uint32_t type, std::uint32_t delta) {
        put<std::uint32_t>(at_, layout_.big_endian ? (type << 27) | delta : type | (delta << 5));
        at_ += 4;
    }
    void word(std::uint32_t value) {
        put<std::uint32_t>(at_, value);
        at_ += 4;
    }

    PageLayout layout_;
    bool swap_;
    std::vector<std::byte> bytes_;
    std::size_t at_;
    std::uint64_t missed_ = 0;
};

// For the names of tests that run in each layout.
template <typename Info>
std::string layout_name(const Info& info) {
    return (info.param.big_endian ? std::string("big") : std::string("little")) +
           std::to_string(info.param.commit_size * 8) + "_" + std::to_string(info.param.page_size);
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
    std::vector<std::byte> out(text.size());
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(out.data()));
    return out;
}

// The fields of a record one after the other, in a byte order.
class RecordBuilder {
  public:
    explicit RecordBuilder(bool big_endian) : swap_(swap_needed(big_endian)) {}
    template <typename T>
    RecordBuilder& number(T value) {
        if (swap_) {
            value = byte_swap(value);
        }
        const auto* raw = reinterpret_cast<const std::byte*>(&value);
        bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
        return *this;
    }
    RecordBuilder& text(std::string_view text, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) {
            bytes_.push_back(i < text.size() ? static_cast<std::byte>(text[i]) : std::byte{0});
        }
        return *this;
    }
    // common_type, flags, preempt count, pid.
    RecordBuilder& common(std::uint16_t id, std::int32_t pid) {
        return number<std::uint16_t>(id).number<std::uint8_t>(0).number<std::uint8_t>(0).number<std::int32_t>(pid);
    }
    std::vector<std::byte> bytes() {
        while (bytes_.size() % 4 != 0) {
            bytes_.push_back(std::byte{0});
        }
        return bytes_;
    }

  private:
    bool swap_;
    std::vector<std::byte> bytes_;
};

inline constexpr const char* kCommonFields =
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

inline std::string format_text(const std::string& name, int id, const std::string& fields) {
    return "name: " + name + "\nID: " + std::to_string(id) + "\nformat:\n" + kCommonFields + fields +
           "\nprint fmt: \"%d\", REC->x\n";
}

inline std::string header_page(const PageLayout& layout) {
    const std::string size = std::to_string(layout.commit_size);
    return "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:" + size +
           ";\tsigned:1;\n\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\tfield: char data;\toffset:" +
           std::to_string(layout.data_offset) + ";\tsize:" + std::to_string(layout.page_size - layout.data_offset) +
           ";\tsigned:1;\n";
}

// A directory that goes away with the test.
class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "sampleblk-test-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp");
        }
        path_ = name;
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    TemporaryDirectory(TemporaryDirectory&&) = delete;
    TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

}  // namespace sampleblk::trace::test
