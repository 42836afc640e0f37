/* fabric/units.c - unit families and exact decimals. */
#include "fabric/units.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

enum { DECIMALS_MAX = 12, DIGITS_MAX = 20 /* 2^64 has 20; times 10^12 that fits 128 bits. */ };

struct spelling {
    const char *family; /* Suffix of the field's own name. */
    const char *suffix; /* Suffix a file may use instead. */
    struct fabric_unit unit;
    int display; /* The one that is printed. */
};

/* Longer families first: _bytes_per_s also ends in _s. A flop is one multiply or one add. */
static const struct spelling spellings[] = {
    {"_bytes_per_s", "_bytes_per_s", {1, 1}, 0},
    {"_bytes_per_s", "_mbytes_per_s", {1000000, 1}, 0},
    {"_bytes_per_s", "_gbytes_per_s", {1000000000, 1}, 1},
    {"_bytes_per_s", "_tbytes_per_s", {1000000000000, 1}, 0},
    {"_bytes_per_s", "_gbits_per_s", {1000000000, 8}, 0},
    {"_flop_per_s", "_flop_per_s", {1, 1}, 0},
    {"_flop_per_s", "_gflop_per_s", {1000000000, 1}, 0},
    {"_flop_per_s", "_tflop_per_s", {1000000000000, 1}, 1},
    {"_ps", "_ps", {1, 1}, 0},
    {"_ps", "_ns", {1000, 1}, 0},
    {"_ps", "_us", {1000000, 1}, 1},
    {"_ps", "_ms", {1000000000, 1}, 0},
    {"_bytes", "_bytes", {1, 1}, 1},
    {"_bytes", "_kib", {1024, 1}, 0},
    {"_bytes", "_mib", {1048576, 1}, 0},
    {"_bytes", "_gib", {1073741824, 1}, 0},
    {"_bytes", "_gbytes", {1000000000, 1}, 0},
    {"_ppm", "_ppm", {1, 1}, 0},
    {"_ppm", "_percent", {10000, 1}, 1},
    {"_microusd", "_microusd", {1, 1}, 0},
    {"_microusd", "_usd", {1000000, 1}, 1},
};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

/* Length of name without suffix, or 0 when it has another one. */
static size_t stem(const char *name, const char *suffix)
{
    const size_t name_len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    if (name_len <= suffix_len) return 0;
    return strcmp(name + name_len - suffix_len, suffix) == 0 ? name_len - suffix_len : 0;
}

static const char *family_of(const char *field)
{
    for (size_t i = 0; i < SPELLINGS; i++)
        if (stem(field, spellings[i].family)) return spellings[i].family;
    return NULL;
}

int fabric_unit_match(const char *field, const char *key, struct fabric_unit *unit)
{
    *unit = (struct fabric_unit){1, 1};
    const char *family = family_of(field);
    if (!family) return strcmp(field, key) == 0;
    const size_t field_stem = stem(field, family);
    for (size_t i = 0; i < SPELLINGS; i++) {
        if (strcmp(spellings[i].family, family) != 0) continue;
        if (stem(key, spellings[i].suffix) != field_stem) continue;
        if (strncmp(field, key, field_stem) != 0) continue;
        *unit = spellings[i].unit;
        return 1;
    }
    return 0;
}

static unsigned digit(char c)
{
    return (unsigned)(unsigned char)c - '0';
}

enum fabric_decimal fabric_decimal_parse(const char *text, struct fabric_unit unit, uint64_t *value)
{
    assert(unit.numerator > 0 && unit.denominator > 0);
    const int negative = text[0] == '-';
    const char *whole = text + negative;
    const size_t whole_len = strspn(whole, "0123456789");
    const char *fraction = whole + whole_len + (whole[whole_len] == '.');
    size_t fraction_len = strspn(fraction, "0123456789");
    if (whole_len + fraction_len == 0 || fraction[fraction_len] != '\0') return FABRIC_DECIMAL_BAD;

    while (fraction_len > 0 && fraction[fraction_len - 1] == '0') fraction_len--; /* 2.50 is 2.5. */
    const size_t zeros = strspn(whole, "0") < whole_len ? strspn(whole, "0") : whole_len;
    if (negative && (zeros < whole_len || fraction_len > 0)) return FABRIC_DECIMAL_NEGATIVE;
    if (whole_len - zeros > DIGITS_MAX) return FABRIC_DECIMAL_LARGE;
    if (whole_len - zeros + fraction_len > DIGITS_MAX) return FABRIC_DECIMAL_FINE;

    u128 mantissa = 0; /* At most 20 digits: below 2^67. */
    u128 divisor = unit.denominator;
    for (size_t i = zeros; i < whole_len; i++) mantissa = mantissa * 10 + digit(whole[i]);
    for (size_t i = 0; i < fraction_len; i++) {
        mantissa = mantissa * 10 + digit(fraction[i]);
        divisor *= 10;
    }
    mantissa *= unit.numerator; /* Below 2^67 * 2^40. */
    if (mantissa % divisor != 0) return FABRIC_DECIMAL_FINE;
    if (mantissa / divisor > UINT64_MAX) return FABRIC_DECIMAL_LARGE;
    *value = (uint64_t)(mantissa / divisor);
    return FABRIC_DECIMAL_OK;
}

void fabric_decimal_format(uint64_t value, struct fabric_unit unit, char *text, size_t text_len)
{
    assert(unit.numerator > 0 && unit.denominator > 0);
    const u128 scaled = (u128)value * unit.denominator;
    u128 rest = scaled % unit.numerator;
    char decimals[DECIMALS_MAX + 1];
    int used = 0;
    int last = 0; /* Decimals up to the last one that is not 0. */
    while (rest > 0 && used < DECIMALS_MAX) {
        rest *= 10;
        decimals[used] = (char)('0' + (int)(rest / unit.numerator));
        rest %= unit.numerator;
        if (decimals[used++] != '0') last = used;
    }
    decimals[last] = '\0';
    const u128 whole = scaled / unit.numerator;
    assert(whole <= UINT64_MAX);
    snprintf(text, text_len, "%" PRIu64 "%s%s", (uint64_t)whole, last ? "." : "", decimals);
}

void fabric_unit_display(const char *field, uint64_t value, char *key, size_t key_len, char *text,
                         size_t text_len)
{
    const char *family = family_of(field);
    struct fabric_unit unit = {1, 1};
    snprintf(key, key_len, "%s", field);
    for (size_t i = 0; family && i < SPELLINGS; i++) {
        if (!spellings[i].display || strcmp(spellings[i].family, family) != 0) continue;
        const size_t field_stem = stem(field, family);
        snprintf(key, key_len, "%.*s%s", (int)field_stem, field, spellings[i].suffix);
        unit = spellings[i].unit;
    }
    fabric_decimal_format(value, unit, text, text_len);
}
