/* sim/settings.c - the table of options and its four readers: text, JSON, digest, defaults. */
#include "sim/settings.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/digest.h"
#include "sim/plugin.h"

#define TEXT(field)                                                                                \
    SIM_OPTION_TEXT, offsetof(struct sim_settings, field),                                         \
        sizeof(((struct sim_settings *)0)->field), 0, 0
#define NUMBER(field, low, high)                                                                   \
    (sizeof(((struct sim_settings *)0)->field) == 8 ? SIM_OPTION_U64 : SIM_OPTION_U32),            \
        offsetof(struct sim_settings, field), sizeof(((struct sim_settings *)0)->field), low, high

static const struct sim_option OPTIONS[] = {
    {"machine", TEXT(machine), NULL, "h200-hgx", "machine preset or YAML file", true},
    {"model", TEXT(model), NULL, "deepseek-v3", "model preset or YAML file", true},
    {"ep", NUMBER(ep, 1, SIM_RANKS_MAX), NULL, "8", "ranks of the expert-parallel group", true},
    {"nodes", NUMBER(nodes, 0, SIM_RANKS_MAX), NULL, "0",
     "nodes; 0 = ep over the machine's node size, rounded up", true},
    {"mode", TEXT(mode), "ll|normal|auto", "auto", "kernels; auto = ll unless prefill", true},
    {"recipe", TEXT(recipe), NULL, "fp8", "what dispatch carries: bf16, fp8, fp8r, ue8m0, ...",
     true},
    {"tokens", TEXT(tokens), NULL, "128", "tokens per rank: N or n0,n1,... (replay: --batch)",
     true},
    {"capacity", TEXT(capacity), NULL, "",
     "M, tokens a rank may send: N or m0,m1,...; empty = largest count rounded up to 128", true},
    {"qp-depth", TEXT(qp_depth), NULL, "auto", "work requests per queue pair; auto = 2(M+1)", true},
    {"allow", TEXT(allow), NULL, "", "check rules to lift, by name, comma-separated", true},
    {"sms", NUMBER(sms, 2, 512), NULL, "20", "SMs the normal kernels take", true},
    {"expert", TEXT(expert), "standin|identity|mlp", "standin",
     "what the experts compute; mlp (FP8 recipes): both GEMMs, sum by sum", true},
    {"overlap", TEXT(overlap), "none|layers|shared-dispatch|shared-combine|sbo|tbo|hooks", "none",
     "schedule of communication and compute; other than none times the whole step", true},
    {"routing", TEXT(routing), NULL, "uniform",
     "uniform, lognormal:S, hot:N, roundrobin, limited:G, prefill, decode, or a trace", true},
    {"offsets", TEXT(offsets), NULL, "", "request offsets of the trace (.npy)", true},
    {"weights", TEXT(weights), NULL, "none", "router weights (.npy); none = 1/k", true},
    {"eplb", NUMBER(eplb, 0, 4096), NULL, "0",
     "places for experts in all: the hottest get replicas; 0 = none", true},
    {"eplb-weights", TEXT(eplb_weights), NULL, "",
     "layers x experts (JSON, .npy) to place by; empty = counts of the routing played", true},
    {"eplb-groups", NUMBER(eplb_groups, 1, 4096), NULL, "1",
     "groups that experts are routed in; a multiple of the nodes: hierarchical", true},
    {"replica", TEXT(replica), "static|row-mod|row-hash", "static",
     "which replica a token takes: by rank, or by its row", true},
    {"after", TEXT(after), "clean|normal|ll", "clean", "what used the buffers before", true},
    {"fabric-routing", TEXT(fabric_routing), "ideal|static|adaptive", "ideal",
     "leaf and spine switches: static hashing by queue pair, adaptive, or no path shared", true},
    {"congestion-control", TEXT(congestion_control), "ideal|on|off", "ideal",
     "a receiver's port that is full: senders paced, or held; ideal = it never is", true},
    {"background", TEXT(background), NULL, "0",
     "Gb/s of other traffic in and out of every NIC, N[:shared|own]: on our virtual lane or its "
     "own",
     true},
    {"scenario", TEXT(scenario), NULL, "", "faults to inject (YAML)", true},
    {"skew", TEXT(skew), NULL, "none",
     "ranks late at dispatch: none, normal:US (standard deviation), late:RANK:US", true},
    {"hook", TEXT(hook), NULL, "none",
     "ll: send and receive are two kernels, with US of other work between; none = one kernel",
     true},
    {"detail", TEXT(detail), "summary|span|message", "span", "what the database keeps", false},
    {"backend", TEXT(backend), NULL, "none",
     "who moves the bytes: none, ref, cuda, or a plugin's PATH.so", false},
    {"time-limit-s", NUMBER(time_limit_s, 1, SIM_PLUGIN_LIMIT_S_MAX), NULL, "60",
     "--backend PATH.so: seconds that one operation may take", false},
    {"transport", TEXT(transport), "driven|direct", "driven",
     "--backend cuda: message by message, or kernels that reach into each other's memory", false},
    {"gpus", NUMBER(gpus, 1, 16), NULL, "1", "--backend cuda: GPUs to spread the ranks over",
     false},
    {"mapping", TEXT(mapping), "blocks|round-robin", "blocks",
     "--backend cuda: do neighbouring ranks share a GPU?", false},
    {"host-mib", NUMBER(host_mib, 0, UINT32_MAX), NULL, "0",
     "MiB of host memory to plan with; 0 = what is free", false},
    {"gpu-mib", NUMBER(gpu_mib, 0, UINT32_MAX), NULL, "0",
     "--backend cuda: MiB to take of each GPU at most; 0 = what is free", false},
    {"layers", TEXT(layers), NULL, "", "MoE layers: N = the first N, A-B = from A to B", true},
    {"context", NUMBER(context, 0, 1 << 24), NULL, "0",
     "tokens each request has read; above 0 times the whole step, attention and experts too", true},
    {"phase", TEXT(phase), "auto|decode|prefill", "auto",
     "what the rows are; auto = decode in ll, prefill in normal; said, it times the whole step",
     true},
    {"verify", NUMBER(verify, 1, 64), NULL, "1", "decode: rows per request (draft tokens + 1)",
     true},
    {"prompt", NUMBER(prompt, 0, 1 << 24), NULL, "0",
     "prefill: rows per request; 0 = a rank's rows are one request", true},
    {"attn-tp", NUMBER(attn_tp, 1, SIM_RANKS_MAX), NULL, "1", "ranks that share attention's heads",
     true},
    {"attention", TEXT(attention), "auto|roofline", "auto",
     "auto = the machine's measured table where it answers", true},
    {"gather", TEXT(gather), "none|dense|all", "none",
     "layers with a data-parallel gather before and a reduce-scatter after the FFN", true},
    {"padding", TEXT(padding), "auto|max|sum", "auto",
     "that gather: padded to the largest rank (all-gather), or exact (all-reduce)", true},
    {"gemm", TEXT(gemm), "auto|deepgemm|cutedsl", "auto", "grouped GEMM library, for sbo", true},
    {"comm-sms", NUMBER(comm_sms, 0, 512), NULL, "0",
     "low latency: SMs of a combine beside compute; 0 = 3 up to Hopper, 32 from Blackwell", true},
    {"steps", NUMBER(steps, 1, 1000000), NULL, "1", "steps to play", true},
    {"seed", NUMBER(seed, 0, INT64_MAX), NULL, "1", "seed of everything drawn", true},
    {"threads", NUMBER(threads, 0, 256), NULL, "0", "worker threads; 0 = all cores", false},
};

enum { OPTION_COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };

const struct sim_option *sim_options(size_t *count)
{
    assert(count != NULL);
    *count = OPTION_COUNT;
    return OPTIONS;
}

const struct sim_option *sim_option_find(const char *name)
{
    assert(name != NULL);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strcmp(OPTIONS[i].name, name) == 0) return &OPTIONS[i];
    return NULL;
}

int sim_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    assert(text != NULL && out != NULL && min <= max);
    if (text[0] < '0' || text[0] > '9') return -1; /* strtoull takes signs and blanks. */
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < min || value > max) return -1;
    *out = value;
    return 0;
}

/* Is value one of "a|b|c"? */
static bool is_choice(const char *choices, const char *value)
{
    const size_t length = strlen(value);
    for (const char *at = choices; length > 0 && *at != '\0';) {
        const size_t span = strcspn(at, "|");
        if (span == length && memcmp(at, value, length) == 0) return true;
        at += span + (at[span] == '|');
    }
    return false;
}

int sim_settings_set(struct sim_settings *settings, const char *name, const char *value, char *err,
                     size_t err_len)
{
    const struct sim_option *option = sim_option_find(name);
    char *field = NULL;
    uint64_t number = 0;

    if (option == NULL) {
        snprintf(err, err_len, "--%.64s: no such option", name);
        return -1;
    }
    field = (char *)settings + option->offset;
    if (option->kind == SIM_OPTION_TEXT) {
        if (option->choices != NULL && !is_choice(option->choices, value)) {
            snprintf(err, err_len, "--%s: %.64s: must be one of %s", name, value, option->choices);
            return -1;
        }
        if (strlen(value) >= option->bytes) {
            snprintf(err, err_len, "--%s: %.32s...: at most %zu characters", name, value,
                     option->bytes - 1);
            return -1;
        }
        memset(field, 0, option->bytes);
        memcpy(field, value, strlen(value));
        return 0;
    }
    if (sim_parse_u64(value, option->min, option->max, &number) != 0) {
        snprintf(err, err_len, "--%s: %.64s: must be a whole number from %" PRIu64 " to %" PRIu64,
                 name, value, option->min, option->max);
        return -1;
    }
    if (option->kind == SIM_OPTION_U32) {
        const uint32_t narrow = (uint32_t)number;
        memcpy(field, &narrow, sizeof narrow);
    } else {
        memcpy(field, &number, sizeof number);
    }
    return 0;
}

void sim_settings_default(struct sim_settings *settings)
{
    char err[256] = "";
    memset(settings, 0, sizeof *settings);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const int status =
            sim_settings_set(settings, OPTIONS[i].name, OPTIONS[i].fallback, err, sizeof err);
        assert(status == 0);
        (void)status;
    }
}

/* The value of a number option. */
static uint64_t number_of(const struct sim_settings *settings, const struct sim_option *option)
{
    const char *field = (const char *)settings + option->offset;
    uint64_t wide = 0;
    uint32_t narrow = 0;
    assert(option->kind != SIM_OPTION_TEXT);
    if (option->kind == SIM_OPTION_U64) {
        memcpy(&wide, field, sizeof wide);
        return wide;
    }
    memcpy(&narrow, field, sizeof narrow);
    return narrow;
}

void sim_settings_get(const struct sim_settings *settings, const struct sim_option *option,
                      char *text, size_t text_len)
{
    if (option->kind == SIM_OPTION_TEXT)
        snprintf(text, text_len, "%s", (const char *)settings + option->offset);
    else
        snprintf(text, text_len, "%" PRIu64, number_of(settings, option));
}

json_t *sim_settings_json(const struct sim_settings *settings)
{
    json_t *json = json_object();
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct sim_option *option = &OPTIONS[i];
        json_t *value = NULL;
        if (option->kind == SIM_OPTION_TEXT)
            value = json_string((const char *)settings + option->offset);
        else if (number_of(settings, option) <= INT64_MAX)
            value = json_integer((json_int_t)number_of(settings, option));
        else {
            char text[32];
            sim_settings_get(settings, option, text, sizeof text);
            value = json_string(text); /* A JSON integer ends at 2^63. */
        }
        json_object_set_new(json, option->name, value);
    }
    return json;
}

int sim_settings_from_json(const json_t *json, struct sim_settings *settings, char *err,
                           size_t err_len)
{
    struct sim_settings read;
    const char *name = NULL;
    json_t *value = NULL;

    sim_settings_default(&read);
    if (!json_is_object(json)) {
        snprintf(err, err_len, "settings: must be a JSON object");
        return -1;
    }
    json_object_foreach((json_t *)(uintptr_t)json, name, value)
    {
        char number[32];
        const char *text = json_string_value(value);
        if (json_is_integer(value)) {
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
            text = number;
        }
        if (text == NULL) {
            snprintf(err, err_len, "settings: %.64s: must be text or a whole number", name);
            return -1;
        }
        if (sim_settings_set(&read, name, text, err, err_len) != 0) return -1;
    }
    *settings = read;
    return 0;
}

void sim_settings_words(const struct sim_settings *settings, const char *const *omit, char *text,
                        size_t text_len)
{
    size_t used = 0;

    assert(omit != NULL && text_len > 0);
    text[0] = '\0';
    for (size_t i = 0; i < OPTION_COUNT && used < text_len; i++) {
        const struct sim_option *option = &OPTIONS[i];
        const char *const *known = omit;
        char value[SIM_PATH_MAX];
        while (*known != NULL && strcmp(*known, option->name) != 0) known++;
        if (!option->in_digest || *known != NULL) continue;
        sim_settings_get(settings, option, value, sizeof value);
        if (strcmp(value, option->fallback) == 0) continue;
        used += (size_t)snprintf(text + used, text_len - used, "%s--%s %s", used > 0 ? " " : "",
                                 option->name, value);
    }
}

void sim_settings_digest(const struct sim_settings *settings, char digest[17])
{
    uint64_t hash = 0;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char text[SIM_PATH_MAX];
        if (!OPTIONS[i].in_digest) continue;
        sim_settings_get(settings, &OPTIONS[i], text, sizeof text);
        hash = ref_digest_mix(hash, ref_digest(OPTIONS[i].name, strlen(OPTIONS[i].name)));
        hash = ref_digest_mix(hash, ref_digest(text, strlen(text)));
    }
    snprintf(digest, 17, "%016" PRIx64, hash);
}

int sim_settings_per_rank(const char *option, const char *text, uint32_t ranks, uint64_t max,
                          uint32_t *out, char *err, size_t err_len)
{
    uint32_t count = 0;
    assert(ranks > 0 && max <= UINT32_MAX);
    for (const char *at = text;; at++) {
        char item[24];
        uint64_t value = 0;
        const size_t span = strcspn(at, ",");
        if (span >= sizeof item) goto bad;
        memcpy(item, at, span);
        item[span] = '\0';
        if (sim_parse_u64(item, 0, max, &value) != 0) goto bad;
        if (count == ranks) {
            snprintf(err, err_len, "--%s: more than %" PRIu32 " numbers, one per rank", option,
                     ranks);
            return -1;
        }
        out[count++] = (uint32_t)value;
        at += span;
        if (*at == '\0') break;
    }
    if (count == 1)
        for (; count < ranks; count++) out[count] = out[0];
    if (count != ranks) {
        snprintf(err, err_len,
                 "--%s: %" PRIu32 " numbers for %" PRIu32 " ranks: give one, or %" PRIu32, option,
                 count, ranks, ranks);
        return -1;
    }
    return 0;
bad:
    snprintf(err, err_len, "--%s: %.64s: must be N or n0,n1,... with numbers from 0 to %" PRIu64,
             option, text, max);
    return -1;
}
