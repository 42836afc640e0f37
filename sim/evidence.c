/* sim/evidence.c - the record as a file: read with every field checked, written whole. */
#include "sim/evidence.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/config.h"
#include "sim/settings.h"
#include "traces/file.h"

enum { FIELDS = 9, LINE_BYTES = 512 };

static const char HEADER[] = "kind,name,input,kernels,output,gpu,driver,cuda,kernel_ns";

const char *sim_evidence_kernels(void)
{
    return EPSIM_KERNELS_DIGEST;
}

/* 16 lower-case hex digits. */
static bool is_digest(const char *text)
{
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

static bool copy_text(char *to, size_t room, const char *from)
{
    const size_t length = strlen(from);

    assert(room > 0);
    for (size_t i = 0; i < length; i++)
        if (!isprint((unsigned char)from[i])) return false;
    if (length == 0 || length >= room) return false;
    memcpy(to, from, length + 1);
    return true;
}

/* One line of the file. 0, or -1 with what is wrong in why. */
static int parse_line(char *text, struct sim_evidence_line *line, char *why, size_t why_len)
{
    static const char *const NAMES[FIELDS] = {"kind", "name",   "input", "kernels",  "output",
                                              "gpu",  "driver", "cuda",  "kernel_ns"};
    char *fields[FIELDS];
    uint32_t count = 0, bad = FIELDS;

    for (char *at = text; at != NULL; count++) {
        char *comma = strchr(at, ',');
        if (count < FIELDS) fields[count] = at;
        if (comma != NULL) *comma++ = '\0';
        at = comma;
    }
    if (count != FIELDS) {
        snprintf(why, why_len, "%" PRIu32 " fields: must be %d", count, FIELDS);
        return -1;
    }
    memset(line, 0, sizeof *line);
    for (uint32_t f = 2; f <= 4; f++)
        if (!is_digest(fields[f])) bad = f;
    if (strcmp(fields[0], "case") != 0 && strcmp(fields[0], "job") != 0 &&
        strcmp(fields[0], "fault") != 0)
        bad = 0;
    else if (!copy_text(line->name, sizeof line->name, fields[1]))
        bad = 1;
    else if (!copy_text(line->gpu, sizeof line->gpu, fields[5]))
        bad = 5;
    else if (!copy_text(line->driver, sizeof line->driver, fields[6]))
        bad = 6;
    else if (!copy_text(line->cuda, sizeof line->cuda, fields[7]))
        bad = 7;
    else if (sim_parse_u64(fields[8], 0, INT64_MAX, &line->kernel_ns) != 0)
        bad = 8;
    if (bad != FIELDS) {
        assert(bad < FIELDS);
        snprintf(why, why_len, "%s: %.64s: must be %s", NAMES[bad], fields[bad],
                 bad == 0               ? "case, job or fault"
                 : bad >= 2 && bad <= 4 ? "16 hex digits"
                 : bad == 8             ? "nanoseconds"
                                        : "short text");
        return -1;
    }
    memcpy(line->kind, fields[0], strlen(fields[0]) + 1);
    assert(sizeof line->kernels == strlen(fields[3]) + 1);
    memcpy(line->kernels, fields[3], sizeof line->kernels);
    line->input = strtoull(fields[2], NULL, 16);
    line->output = strtoull(fields[4], NULL, 16);
    return 0;
}

/* Room for one more; NULL with err. */
static struct sim_evidence_line *grow(struct sim_evidence *evidence, char *err, size_t err_len)
{
    if (evidence->count == evidence->capacity) {
        const size_t wanted = evidence->capacity == 0 ? 256 : 2 * evidence->capacity;
        struct sim_evidence_line *lines =
            (struct sim_evidence_line *)realloc(evidence->lines, wanted * sizeof *lines);
        if (lines == NULL) {
            snprintf(err, err_len, "record: out of memory");
            return NULL;
        }
        evidence->lines = lines;
        evidence->capacity = wanted;
    }
    assert(evidence->count < evidence->capacity);
    return &evidence->lines[evidence->count];
}

int sim_evidence_add(struct sim_evidence *evidence, const struct sim_evidence_line *line, char *err,
                     size_t err_len)
{
    struct sim_evidence_line *place = grow(evidence, err, err_len);

    assert(is_digest(line->kernels));
    if (place == NULL) return -1;
    *place = *line;
    evidence->count++;
    return 0;
}

static bool has(const struct sim_evidence *evidence, const struct sim_evidence_line *line)
{
    for (size_t i = 0; i < evidence->count; i++)
        if (strcmp(evidence->lines[i].kind, line->kind) == 0 &&
            strcmp(evidence->lines[i].name, line->name) == 0)
            return true;
    return false;
}

/* Line by line; the first must be the header. */
static int parse_file(const char *path, const struct trace_file *file,
                      struct sim_evidence *evidence, char *err, size_t err_len)
{
    uint64_t at = 0, number = 0;

    while (at < file->bytes) {
        const uint8_t *start = file->data + at;
        const void *newline = memchr(start, '\n', file->bytes - at);
        const uint64_t length =
            newline != NULL ? (uint64_t)((const uint8_t *)newline - start) : file->bytes - at;
        struct sim_evidence_line line;
        char text[LINE_BYTES], why[160] = "";

        assert(length <= file->bytes - at);
        number++;
        if (length >= sizeof text || memchr(start, '\0', length) != NULL)
            snprintf(why, sizeof why, "no line of text under %d characters", LINE_BYTES);
        if (why[0] == '\0') {
            memcpy(text, start, length);
            text[length] = '\0';
            if (number == 1 && strcmp(text, HEADER) != 0)
                snprintf(why, sizeof why, "the first line must be %s", HEADER);
            else if (number > 1 && parse_line(text, &line, why, sizeof why) == 0 &&
                     has(evidence, &line))
                snprintf(why, sizeof why, "name: %s: stands there twice", line.name);
        }
        if (why[0] != '\0') {
            snprintf(err, err_len, "%.300s:%" PRIu64 ": %s", path, number, why);
            return -1;
        }
        if (number > 1 && sim_evidence_add(evidence, &line, err, err_len) != 0) return -1;
        at += length + (newline != NULL);
    }
    if (evidence->count > 0) return 0;
    snprintf(err, err_len, "%.300s: no line of evidence in it", path);
    return -1;
}

int sim_evidence_load(const char *path, struct sim_evidence *evidence, char *err, size_t err_len)
{
    struct sim_evidence made = {0};
    struct trace_file file;

    if (trace_file_open(path, &file, err, err_len) != 0) return -1;
    const int status = parse_file(path, &file, &made, err, err_len);
    trace_file_close(&file);
    if (status != 0)
        sim_evidence_free(&made);
    else
        *evidence = made;
    return status;
}

void sim_evidence_free(struct sim_evidence *evidence)
{
    free(evidence->lines);
    memset(evidence, 0, sizeof *evidence);
}

int sim_evidence_write(const struct sim_evidence *evidence, const char *path, char *err,
                       size_t err_len)
{
    struct trace_output *output = trace_output_open(path, err, err_len);
    char text[LINE_BYTES];

    if (output == NULL) return -1;
    int length = snprintf(text, sizeof text, "%s\n", HEADER);
    for (size_t i = 0; i <= evidence->count; i++) {
        assert(length > 0 && (size_t)length < sizeof text);
        if (trace_output_write(output, text, (size_t)length, err, err_len) != 0) {
            trace_output_abandon(output);
            return -1;
        }
        if (i == evidence->count) break;
        const struct sim_evidence_line *line = &evidence->lines[i];
        length = snprintf(text, sizeof text,
                          "%s,%s,%016" PRIx64 ",%s,%016" PRIx64 ",%s,%s,%s,%" PRIu64 "\n",
                          line->kind, line->name, line->input, line->kernels, line->output,
                          line->gpu, line->driver, line->cuda, line->kernel_ns);
    }
    return trace_output_commit(output, err, err_len);
}
