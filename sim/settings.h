/* sim/settings.h - every option of a run, after defaults, in one struct and one table.
 *
 * The table drives command-line parsing, --help, the settings_json of the database, its digest
 * and re-execution by diff, so an option exists everywhere or nowhere. */
#ifndef SIM_SETTINGS_H
#define SIM_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_PATH_MAX = 1024, SIM_RANKS_MAX = 1024 };

struct sim_settings {
    char machine[SIM_PATH_MAX];
    char model[SIM_PATH_MAX];
    uint32_t ep;
    uint32_t nodes; /* 0 = ep over the machine's node size, rounded up. */
    char mode[16];  /* ll | normal | auto */
    char recipe[24];
    char tokens[SIM_PATH_MAX];   /* "N" or "n0,n1,...": per rank. */
    char capacity[SIM_PATH_MAX]; /* "" = largest token count rounded up to 128. */
    char qp_depth[16];           /* "auto" or a number. */
    char allow[256];
    uint32_t sms;
    char expert[16];
    char overlap[24];
    char routing[SIM_PATH_MAX]; /* A generator's name, or a trace's path. */
    char offsets[SIM_PATH_MAX];
    char weights[SIM_PATH_MAX];      /* none | FILE */
    uint32_t eplb;                   /* Places for experts in all; 0 = one for each, in order. */
    char eplb_weights[SIM_PATH_MAX]; /* "" = counts of the routing that is played. */
    uint32_t eplb_groups;
    char replica[16]; /* static | row-mod | row-hash */
    char after[16];
    char fabric_routing[16];     /* ideal | static | adaptive */
    char congestion_control[16]; /* ideal | on | off */
    char background[32];         /* "GBPS[:shared|own]" */
    char scenario[SIM_PATH_MAX];
    char skew[64]; /* none | normal:US | late:RANK:US (sim/skew.h). */
    char hook[32]; /* none | US of other work between the halves. */
    char detail[16];
    char backend[SIM_PATH_MAX]; /* none | ref | cuda | PATH.so */
    char transport[16];         /* driven | direct */
    uint32_t gpus;              /* Of the backend cuda. */
    char mapping[16];           /* blocks | round-robin: which ranks share a GPU. */
    uint32_t host_mib, gpu_mib; /* Memory to plan with; 0: what is free. */
    uint32_t time_limit_s;      /* Of a plugin: for each operation. */
    char layers[64];            /* "" = all; "N" = the first N; "A-B" */
    uint32_t context;           /* Tokens each request has read. */
    char phase[16];             /* auto | decode | prefill */
    uint32_t verify;            /* Decode: rows per request. */
    uint32_t prompt;            /* Prefill: rows per request; 0 = all rows of a rank are one. */
    uint32_t attn_tp;           /* Ranks that share attention's heads. */
    char attention[16];         /* auto | roofline */
    char gather[16];            /* none | dense | all */
    char padding[16];           /* auto | max | sum */
    char gemm[16];              /* auto | deepgemm | cutedsl */
    uint32_t comm_sms;          /* 0 = the library's. */
    uint32_t steps;
    uint64_t seed;
    uint32_t threads; /* 0 = all cores. Never changes a result, so not in the digest. */
};

enum sim_option_kind { SIM_OPTION_TEXT, SIM_OPTION_U32, SIM_OPTION_U64 };

struct sim_option {
    const char *name; /* Without dashes: "qp-depth". */
    enum sim_option_kind kind;
    size_t offset;        /* In struct sim_settings. */
    size_t bytes;         /* Size of the field. */
    uint64_t min, max;    /* Numbers only, inclusive. */
    const char *choices;  /* "a|b|c", or NULL for free text. */
    const char *fallback; /* Default, as text. */
    const char *help;     /* One line, without the default. */
    bool in_digest;       /* Does it change results? */
};

/* Every option, static, in the order of help. */
const struct sim_option *sim_options(size_t *count);
const struct sim_option *sim_option_find(const char *name); /* NULL when unknown. */
void sim_settings_default(struct sim_settings *settings);

/* Set one option from text. 0, or -1 with "--NAME: VALUE: what is allowed". */
int sim_settings_set(struct sim_settings *settings, const char *name, const char *value, char *err,
                     size_t err_len);
void sim_settings_get(const struct sim_settings *settings, const struct sim_option *option,
                      char *text, size_t text_len);

/* A new JSON object with every option under its name; the caller decrefs. */
json_t *sim_settings_json(const struct sim_settings *settings);
int sim_settings_from_json(const json_t *json, struct sim_settings *settings, char *err,
                           size_t err_len);
/* The options that differ from their defaults and change results, as one would type them:
 * "--hook 78 --skew normal:56". Those named in omit (ends with NULL) are left out. */
void sim_settings_words(const struct sim_settings *settings, const char *const *omit, char *text,
                        size_t text_len);
/* 16 hex digits and a NUL over the options that change results. */
void sim_settings_digest(const struct sim_settings *settings, char digest[17]);

/* Decimal digits alone, min..max; 0, or -1 with *out untouched. */
int sim_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* "N" or "n0,n1,...": one number per rank, 0..max each. 0, or -1 with err. */
int sim_settings_per_rank(const char *option, const char *text, uint32_t ranks, uint64_t max,
                          uint32_t *out, char *err, size_t err_len);

#endif
