/* ref/logfmt.c - decision, packing and the model of the encoding. */
#include "ref/logfmt.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/mathfn.h"
#include "ref/routing.h" /* REF_GROUP_CHANNELS */

enum { GROUP = REF_GROUP_CHANNELS, PACK = 16, PACK_BYTES = 20, CODE_BITS = 9, CODE_MAX = 511 };

static const uint32_t ALL_NAN = 0x7FFF7FFFu;

uint32_t ref_logfmt_chunk_channels(uint32_t hidden)
{
    assert(hidden > 0 && hidden % 512 == 0);
    return hidden % 1024 == 0 ? 1024 : 512;
}

uint32_t ref_logfmt_group_range(const uint16_t *y)
{
    uint32_t largest = 0, smallest = 0x7FFF;

    for (int i = 0; i < GROUP; i++) {
        const uint32_t magnitude = y[i] & 0x7FFFu;
        if (magnitude > 0x7F80u) continue;
        if (magnitude > largest) largest = magnitude;
        if (magnitude < smallest) smallest = magnitude;
    }
    return smallest == 0x7FFF ? ALL_NAN : largest | smallest << 16;
}

/* On bit patterns: bf16 magnitudes order as integers, and their logarithms lie far enough apart
 * that any sane log2 orders them the same way, approximate ones included. */
bool ref_logfmt_chunk_encodes(const uint32_t *ranges, uint32_t groups)
{
    assert(ranges != NULL && groups > 0);
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t largest = ranges[g] & 0xFFFFu, smallest = ranges[g] >> 16;
        if (largest >= 0x3F80u || smallest >= largest) return false;
    }
    return true;
}

struct grid {
    float log_low; /* Li */
    float step;    /* Above 0. */
};

static struct grid grid_of(uint32_t range)
{
    const float log_high = ref_log2(ref_bf16_to_f32((uint16_t)range));
    const float log_small = ref_log2(ref_bf16_to_f32((uint16_t)(range >> 16)));
    const float clip = log_high - 32.0f;
    struct grid grid;

    grid.log_low = log_small > clip ? log_small : clip; /* log2(0) is -infinity: clipped. */
    grid.step = (log_high - grid.log_low) / 510.0f;
    assert(grid.step > 0);
    return grid;
}

static void encode_group(const uint16_t *y, uint32_t range, uint16_t *codes)
{
    const struct grid grid = grid_of(range);
    const float per_step = 1.0f / grid.step;
    const float middle = (1.0f + ref_exp2(grid.step)) * 0.5f;
    const float rounding = fmaf(-ref_log2(middle), per_step, 2.0f);
    const float offset = fmaf(-grid.log_low, per_step, rounding);

    for (int i = 0; i < GROUP; i++) {
        const uint32_t magnitude = y[i] & 0x7FFFu;
        const float log_size = ref_log2(ref_bf16_to_f32((uint16_t)magnitude));
        const float place = fmaf(log_size, per_step, offset);
        const bool positive = magnitude <= 0x7F80u && place > 0; /* NaN becomes 0, as fmaxf. */
        const float whole = positive ? floorf(place) : 0.0f;
        codes[i] = (uint16_t)(whole > CODE_MAX ? CODE_MAX : (int)whole);
    }
}

/* 16 codes of 9 bits, lowest first, then 16 signs. */
static void pack(const uint16_t *codes, const uint16_t *y, uint8_t *out)
{
    uint16_t signs = 0;

    memset(out, 0, PACK_BYTES);
    for (unsigned i = 0; i < PACK; i++) {
        const unsigned bit = i * CODE_BITS;
        const uint32_t shifted = (uint32_t)codes[i] << (bit % 8);
        assert(codes[i] <= CODE_MAX);
        out[bit / 8] |= (uint8_t)shifted;
        out[bit / 8 + 1] |= (uint8_t)(shifted >> 8);
        signs |= (uint16_t)((y[i] >> 15) << i);
    }
    out[18] = (uint8_t)signs;
    out[19] = (uint8_t)(signs >> 8);
}

static void unpack_group(const uint8_t *in, uint32_t range, float *out)
{
    const struct grid grid = grid_of(range);

    for (unsigned p = 0; p < GROUP / PACK; p++, in += PACK_BYTES, out += PACK)
        for (unsigned i = 0; i < PACK; i++) {
            const unsigned bit = i * CODE_BITS;
            const uint32_t pair = (uint32_t)in[bit / 8] | (uint32_t)in[bit / 8 + 1] << 8;
            const uint32_t code = pair >> (bit % 8) & CODE_MAX;
            const float exponent = fmaf((float)(int32_t)(code - 1u), grid.step, grid.log_low);
            const float size = code == 0 ? 0.0f : ref_exp2(exponent);
            out[i] = in[18 + i / 8] >> (i % 8) & 1 ? -size : size;
        }
}

uint64_t ref_logfmt_encode(const uint16_t *y, uint32_t hidden, uint32_t *ranges, uint8_t *data)
{
    const uint32_t chunk = ref_logfmt_chunk_channels(hidden), groups = chunk / GROUP;
    uint64_t bytes = 0;

    assert(y != NULL && ranges != NULL && data != NULL);
    for (uint32_t g = 0; g < hidden / GROUP; g++) ranges[g] = ref_logfmt_group_range(y + g * GROUP);
    for (uint32_t c = 0; c < hidden / chunk; c++) {
        const uint16_t *from = y + (uint64_t)c * chunk;
        if (!ref_logfmt_chunk_encodes(ranges + c * groups, groups)) {
            memcpy(data + bytes, from, chunk * sizeof *y);
            bytes += chunk * sizeof *y;
            continue;
        }
        for (uint32_t g = 0; g < groups; g++) {
            uint16_t codes[GROUP];
            encode_group(from + g * GROUP, ranges[c * groups + g], codes);
            for (unsigned p = 0; p < GROUP; p += PACK, bytes += PACK_BYTES)
                pack(codes + p, from + g * GROUP + p, data + bytes);
        }
    }
    return bytes;
}

void ref_logfmt_decode(const uint32_t *ranges, const uint8_t *data, uint32_t hidden, float *out)
{
    const uint32_t chunk = ref_logfmt_chunk_channels(hidden), groups = chunk / GROUP;

    assert(ranges != NULL && data != NULL && out != NULL);
    for (uint32_t c = 0; c < hidden / chunk; c++, out += chunk) {
        if (!ref_logfmt_chunk_encodes(ranges + c * groups, groups)) {
            for (uint32_t i = 0; i < chunk; i++, data += 2)
                out[i] = ref_bf16_to_f32((uint16_t)(data[0] | data[1] << 8));
            continue;
        }
        for (uint32_t g = 0; g < groups; g++, data += GROUP / PACK * PACK_BYTES)
            unpack_group(data, ranges[c * groups + g], out + g * GROUP);
    }
}
