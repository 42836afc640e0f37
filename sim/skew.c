/* sim/skew.c - reads a skew and draws it. */
#include "sim/skew.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fabric/units.h"
#include "sim/rng.h"
#include "sim/settings.h"

enum { PURPOSE_SKEW = 5 };

int sim_skew_parse_us(const char *text, uint64_t *ps)
{
    struct fabric_unit unit;
    uint64_t value = 0;
    const int known = fabric_unit_match("skew_ps", "skew_us", &unit);
    assert(known);
    (void)known;
    if (text[0] < '0' || text[0] > '9') return -1;
    if (fabric_decimal_parse(text, unit, &value) != FABRIC_DECIMAL_OK) return -1;
    if (value > (uint64_t)SIM_SKEW_US_MAX * 1000000) return -1;
    *ps = value;
    return 0;
}

int sim_skew_parse(const char *text, uint32_t ranks, struct sim_skew *skew, char *err,
                   size_t err_len)
{
    struct sim_skew read = {SIM_SKEW_NONE, 0, 0};
    const char *colon = strchr(text, ':');
    char number[16];
    uint64_t rank = 0;

    if (strcmp(text, "none") == 0) goto done;
    if (strncmp(text, "normal:", 7) == 0) {
        read.kind = SIM_SKEW_NORMAL;
        if (sim_skew_parse_us(text + 7, &read.ps) != 0) goto bad;
        goto done;
    }
    if (strncmp(text, "late:", 5) != 0 || (colon = strchr(text + 5, ':')) == NULL) goto bad;
    const size_t span = (size_t)(colon - (text + 5));
    if (span >= sizeof number) goto bad;
    memcpy(number, text + 5, span);
    number[span] = '\0';
    read.kind = SIM_SKEW_LATE;
    if (sim_parse_u64(number, 0, ranks - 1, &rank) != 0) goto bad;
    if (sim_skew_parse_us(colon + 1, &read.ps) != 0) goto bad;
    read.rank = (uint32_t)rank;
done:
    *skew = read;
    return 0;
bad:
    snprintf(err, err_len,
             "--skew: %.48s: must be none, normal:US or late:RANK:US, RANK from 0 to %" PRIu32
             ", US up to %d",
             text, ranks - 1, SIM_SKEW_US_MAX);
    return -1;
}

void sim_skew_add(const struct sim_skew *skew, uint64_t seed, uint64_t step, uint32_t layer,
                  uint32_t ranks, uint64_t *start_ps)
{
    int64_t late_ps[SIM_RANKS_MAX], first_ps = INT64_MAX;
    assert(ranks > 0 && ranks <= SIM_RANKS_MAX);
    if (skew->kind == SIM_SKEW_LATE) {
        assert(skew->rank < ranks);
        start_ps[skew->rank] += skew->ps;
    }
    if (skew->kind != SIM_SKEW_NORMAL) return;
    for (uint32_t r = 0; r < ranks; r++) {
        struct sim_rng rng = sim_rng_stream(seed, PURPOSE_SKEW, step, layer, r);
        int64_t deviate = -INT64_C(6) * 65536; /* In units of 2^-16. */
        for (int i = 0; i < 12; i++) deviate += sim_rng_below(&rng, 65536);
        late_ps[r] = deviate * (int64_t)skew->ps / 65536;
        if (late_ps[r] < first_ps) first_ps = late_ps[r];
    }
    for (uint32_t r = 0; r < ranks; r++) start_ps[r] += (uint64_t)(late_ps[r] - first_ps);
}
