// SPDX-License-Identifier: MIT
#include "sampleblk/workload/values.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::string_view number_form = "a whole number such as 4096, 0x1000, 4k, 64M, 2Gi, or (4*1k) in parentheses";
// Deep enough for any job file; a limit keeps a hostile one from exhausting the stack.
constexpr int deepest_expression = 64;

[[noreturn]] void refuse(std::string_view text, std::string_view why, std::string_view expected) {
    throw InputError("'" + std::string(text) + "' " + std::string(why), {}, 0, std::string(expected));
}

char lower(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_letter(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

// The factor of a size suffix, or 0 for an unknown one.
std::uint64_t suffix_factor(std::string_view suffix, KbBase base) {
    if (suffix.empty()) {
        return 1;
    }
    constexpr std::string_view powers = "kmgtp";
    const std::size_t power = powers.find(lower(suffix[0]));
    std::string_view rest = suffix.substr(1);
    if (power == std::string_view::npos) {
        return suffix.size() == 1 && lower(suffix[0]) == 'b' ? 1 : 0;
    }
    const bool with_i = !rest.empty() && lower(rest[0]) == 'i';
    if (with_i) {
        rest.remove_prefix(1);
    }
    if (!rest.empty() && !(rest.size() == 1 && lower(rest[0]) == 'b')) {
        return 0;
    }
    // fio 3.33 reads only the full "KiB" the other way round; a bare "Ki" is a "K" to it.
    const bool full_iec = with_i && !rest.empty();
    const bool binary = full_iec == (base == KbBase::si);
    std::uint64_t factor = 1;
    for (std::size_t i = 0; i <= power; ++i) {
        factor *= binary ? 1024 : 1000;
    }
    return factor;
}

// Recursive descent over + - * / % ^ and parentheses, in doubles as fio's own calculator has it.
class Expression {
  public:
    Expression(std::string_view text, KbBase base) : text_(text), base_(base) {}

    // As bc, which cuts off what a division leaves.
    double evaluate_as_bc() {
        whole_quotients_ = true;
        return all_of(sum(0), "expression");
    }

    double evaluate() {
        // fio calculates in parentheses only: "4k-16k" is a range that stands where none may.
        const bool calculates = text_.starts_with('(');
        return calculates ? all_of(sum(0), "expression") : all_of(atom(0), "number");
    }

  private:
    [[noreturn]] void fail(std::string_view why) const { refuse(text_, why, number_form); }

    // What was read, if the text ends behind it.
    double all_of(double value, const std::string& what) {
        skip_blanks();
        if (at_ != text_.size()) {
            fail("has something after the " + what);
        }
        return value;
    }

    void skip_blanks() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
            ++at_;
        }
    }

    bool take(char c) {
        skip_blanks();
        if (at_ < text_.size() && text_[at_] == c) {
            ++at_;
            return true;
        }
        return false;
    }

    double sum(int depth) {
        double value = product(depth);
        for (;;) {
            if (take('+')) {
                value += product(depth);
            } else if (take('-')) {
                value -= product(depth);
            } else {
                return value;
            }
        }
    }

    double product(int depth) {
        double value = power(depth);
        for (;;) {
            if (take('*')) {
                value *= power(depth);
            } else if (take('/')) {
                value /= divisor(depth);
                value = whole_quotients_ ? std::trunc(value) : value;
            } else if (take('%')) {
                value = std::fmod(value, divisor(depth));
            } else {
                return value;
            }
        }
    }

    double divisor(int depth) {
        const double value = power(depth);
        if (value == 0) {
            fail("divides by zero");
        }
        return value;
    }

    double power(int depth) {
        const double value = atom(depth);
        return take('^') ? std::pow(value, power(deeper(depth))) : value;
    }

    [[nodiscard]] int deeper(int depth) const {
        if (depth >= deepest_expression) {
            fail("is nested too deeply");
        }
        return depth + 1;
    }

    double atom(int depth) {
        if (take('-')) {
            return -atom(deeper(depth));
        }
        if (take('(')) {
            const double value = sum(deeper(depth));
            if (!take(')')) {
                fail("lacks a closing parenthesis");
            }
            return value * suffix();
        }
        skip_blanks();
        double value = 0;
        const char* first = text_.data() + at_;
        const char* last = text_.data() + text_.size();
        if (text_.substr(at_).starts_with("0x") || text_.substr(at_).starts_with("0X")) {
            std::uint64_t hex = 0;
            const auto [end, error] = std::from_chars(first + 2, last, hex, 16);
            if (error != std::errc()) {
                fail("is not a number");
            }
            at_ = static_cast<std::size_t>(end - text_.data());
            return static_cast<double>(hex);
        }
        const auto [end, error] = std::from_chars(first, last, value);
        // from_chars also takes "inf" and "nan", which are not sizes.
        if (error != std::errc() || !std::isfinite(value) || is_letter(*first)) {
            fail("is not a number");
        }
        at_ = static_cast<std::size_t>(end - text_.data());
        return value * suffix();
    }

    double suffix() {
        const std::size_t start = at_;
        while (at_ < text_.size() && is_letter(text_[at_])) {
            ++at_;
        }
        const std::uint64_t factor = suffix_factor(text_.substr(start, at_ - start), base_);
        if (factor == 0) {
            fail("has an unknown unit");
        }
        return static_cast<double>(factor);
    }

    std::string_view text_;
    KbBase base_;
    std::size_t at_ = 0;
    bool whole_quotients_ = false;
};

std::int64_t to_whole(std::string_view text, double value) {
    // 2^63 is a double, the largest int64 is not: compare with what can be held.
    if (!(value >= -9.2e18 && value <= 9.2e18)) {
        refuse(text, "is larger than 63 bits hold", number_form);
    }
    return static_cast<std::int64_t>(value);
}

// A plain number with a suffix, exactly; nullopt when the text is something else.
std::optional<std::int64_t> plain_number(std::string_view text, KbBase base) {
    std::string_view rest = text;
    const bool negative = rest.starts_with('-');
    if (negative || rest.starts_with('+')) {
        rest.remove_prefix(1);
    }
    int radix = 10;
    if (rest.starts_with("0x") || rest.starts_with("0X")) {
        radix = 16;
        rest.remove_prefix(2);
    }
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number, radix);
    if (error == std::errc::result_out_of_range) {
        refuse(text, "is larger than 63 bits hold", number_form);
    }
    if (error != std::errc()) {
        return std::nullopt;
    }
    const std::uint64_t factor = suffix_factor(rest.substr(static_cast<std::size_t>(end - rest.data())), base);
    if (factor == 0) {
        return std::nullopt;
    }
    constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (number > largest / factor) {
        refuse(text, "is larger than 63 bits hold", number_form);
    }
    const auto value = static_cast<std::int64_t>(number * factor);
    return negative ? -value : value;
}

}  // namespace

std::int64_t parse_number(std::string_view text, KbBase base) {
    text = trim(text);
    if (text.empty()) {
        refuse(text, "is not a number", number_form);
    }
    if (const auto plain = plain_number(text, base)) {
        return *plain;
    }
    return to_whole(text, Expression(text, base).evaluate());
}

double calculate(std::string_view text) {
    return Expression(text, KbBase::binary).evaluate_as_bc();
}

std::uint64_t parse_unsigned(std::string_view text, KbBase base) {
    const std::int64_t value = parse_number(text, base);
    if (value < 0) {
        refuse(text, "is negative", number_form);
    }
    return static_cast<std::uint64_t>(value);
}

std::uint64_t parse_duration(std::string_view text, std::uint64_t default_unit_ns) {
    constexpr std::string_view form = "a duration such as 30, 500ms, 10s, 1m30s or 2h";
    struct Unit {
        std::string_view name;
        std::uint64_t ns;
    };
    constexpr std::array<Unit, 8> units = {{{"ns", 1},
                                            {"us", 1'000},
                                            {"usec", 1'000},
                                            {"ms", 1'000'000},
                                            {"msec", 1'000'000},
                                            {"s", 1'000'000'000},
                                            {"m", 60'000'000'000},
                                            {"h", 3'600'000'000'000}}};
    constexpr std::uint64_t day_ns = 86'400'000'000'000;
    std::string_view rest = trim(text);
    if (rest.empty()) {
        refuse(text, "is not a duration", form);
    }
    double total = 0;
    if (rest.front() == '(') {
        total = static_cast<double>(parse_unsigned(rest)) * static_cast<double>(default_unit_ns);
        rest = {};
    }
    while (!rest.empty()) {
        double number = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
        if (error != std::errc() || !(number >= 0) || is_letter(rest.front()) || rest.front() == '-') {
            refuse(text, "is not a duration", form);
        }
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
        std::size_t letters = 0;
        while (letters < rest.size() && is_letter(rest[letters])) {
            ++letters;
        }
        std::string name(rest.substr(0, letters));
        for (char& c : name) {
            c = lower(c);
        }
        rest.remove_prefix(letters);
        if (name.empty() && (total != 0 || !rest.empty())) {
            refuse(text, "has a part without a unit", form);  // whatever 1:30 may be
        }
        std::uint64_t unit = name.empty() ? default_unit_ns : name == "d" ? day_ns : 0;
        for (const Unit& known : units) {
            unit = known.name == name ? known.ns : unit;
        }
        if (unit == 0) {
            refuse(text, "has an unknown unit", form);
        }
        total += number * static_cast<double>(unit);
        if (rest.starts_with(':')) {
            rest.remove_prefix(1);
        }
    }
    if (!(total <= 9.2e18)) {
        refuse(text, "is longer than 63 bits of nanoseconds hold", form);
    }
    return static_cast<std::uint64_t>(total);
}

double parse_float(std::string_view text) {
    text = trim(text);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
        refuse(text, "is not a number", "a number such as 1.2");
    }
    return value;
}

bool parse_bool(std::string_view text) {
    text = trim(text);
    if (text.empty() || text == "1" || text == "true" || text == "yes" || text == "True") {
        return true;
    }
    if (text == "0" || text == "false" || text == "no" || text == "False") {
        return false;
    }
    refuse(text, "is neither true nor false", "1, 0, true, false, yes, no, or the key alone");
}

SizeOrPercent parse_size_or_percent(std::string_view text, KbBase base) {
    text = trim(text);
    // A trailing z counts zones of a zoned device, which only zonemode=zbd knows.
    if (text.ends_with('z') || text.ends_with('Z')) {
        refuse(text, "counts zones of a zoned device, which is not supported", "a size or a percentage");
    }
    if (!text.ends_with('%')) {
        return {.bytes = parse_unsigned(text, base), .percent = 0};
    }
    const std::uint64_t percent = parse_unsigned(text.substr(0, text.size() - 1), base);
    if (percent > 100) {
        refuse(text, "is more than the whole", "0% to 100%");
    }
    return {.bytes = 0, .percent = static_cast<std::uint32_t>(percent)};
}

Range parse_range(std::string_view text, KbBase base) {
    text = trim(text);
    // A minus at the start is a sign; the one that parts the two numbers comes later, outside parentheses.
    int depth = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
        depth += text[i - 1] == '(' ? 1 : text[i - 1] == ')' ? -1 : 0;
        if (text[i] == '-' && depth == 0) {
            Range range{.lower = parse_unsigned(text.substr(0, i), base),
                        .upper = parse_unsigned(text.substr(i + 1), base)};
            if (range.lower > range.upper) {
                std::swap(range.lower, range.upper);
            }
            return range;
        }
    }
    const std::uint64_t value = parse_unsigned(text, base);
    return {.lower = value, .upper = value};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t cut = text.find(separator);
        parts.push_back(trim(text.substr(0, cut)));
        if (cut == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(cut + 1);
    }
}

std::vector<std::optional<std::string_view>> split_triple(std::string_view text) {
    const std::vector<std::string_view> parts = split(text, ',');
    if (parts.size() > 3) {
        refuse(text, "has more than three parts", "read,write,trim");
    }
    std::vector<std::optional<std::string_view>> triple(3);
    for (std::size_t i = 0; i < 3; ++i) {
        const std::string_view part = i < parts.size() ? parts[i] : parts.back();
        if (!part.empty()) {
            triple[i] = part;
        }
    }
    if (std::ranges::none_of(triple, [](const auto& part) { return part.has_value(); })) {
        refuse(text, "is not a value", "read,write,trim");
    }
    return triple;
}

}  // namespace sampleblk::workload
