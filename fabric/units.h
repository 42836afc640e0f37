/* fabric/units.h - from the units people write to the integers the model computes with.
 *
 * A field's last words name its unit: launch_ps, nvlink_bytes_per_s. A file may say the same
 * field in any unit of that family (launch_us: 2.35, nvlink_gbytes_per_s: 450), with decimals;
 * the conversion is exact integer arithmetic, done once. Nothing else in fabric/ knows units. */
#ifndef FABRIC_UNITS_H
#define FABRIC_UNITS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One written unit is numerator / denominator of the field's own unit. */
struct fabric_unit {
    uint64_t numerator;
    uint64_t denominator;
};

/* Does key name field, in its own or in another unit of its family? 1 and *unit, or 0. */
int fabric_unit_match(const char *field, const char *key, struct fabric_unit *unit);

enum fabric_decimal {
    FABRIC_DECIMAL_OK,
    FABRIC_DECIMAL_BAD,      /* Not digits with at most one point. */
    FABRIC_DECIMAL_NEGATIVE, /* A number below 0. */
    FABRIC_DECIMAL_FINE,     /* More decimals than the field's own unit resolves. */
    FABRIC_DECIMAL_LARGE     /* Beyond 64 bits. */
};

/* text in unit -> the field's own unit. *value is written only for FABRIC_DECIMAL_OK. */
enum fabric_decimal fabric_decimal_parse(const char *text, struct fabric_unit unit,
                                         uint64_t *value);

/* value in unit as a decimal without trailing zeros: the inverse of fabric_decimal_parse. A
 * quotient that does not end is cut after 12 decimals. */
void fabric_decimal_format(uint64_t value, struct fabric_unit unit, char *text, size_t text_len);

/* A field and its value as files say it, in the unit people read most easily: ("launch_ps",
 * 2350000) -> "launch_us", "2.35". */
void fabric_unit_display(const char *field, uint64_t value, char *key, size_t key_len, char *text,
                         size_t text_len);

#ifdef __cplusplus
}
#endif

#endif
