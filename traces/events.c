/* traces/events.c - writes trace events as JSON. */
#include "traces/events.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct time_text {
    char text[32];
};

static struct time_text microseconds(uint64_t ns)
{
    struct time_text time;
    snprintf(time.text, sizeof time.text, "%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
    return time;
}

struct trace_name trace_name_clean(const unsigned char *text)
{
    struct trace_name name = {""};
    for (size_t i = 0; text != NULL && text[i] != '\0' && i + 1 < sizeof name.text; i++) {
        const bool plain = text[i] >= ' ' && text[i] <= '~' && text[i] != '"' && text[i] != '\\';
        name.text[i] = plain ? (char)text[i] : '?';
    }
    return name;
}

bool trace_name_same(const struct trace_name *a, const struct trace_name *b)
{
    return strcmp(a->text, b->text) == 0;
}

static void write_text(struct trace_events *events, const char *text, size_t bytes)
{
    if (!events->failed &&
        trace_output_write(events->output, text, bytes, events->err, events->err_len) != 0)
        events->failed = true;
}

/* One event: the inside of its object. */
__attribute__((format(printf, 2, 3))) static void put(struct trace_events *events,
                                                      const char *format, ...)
{
    char line[1024];
    va_list arguments;

    const int head = snprintf(line, sizeof line, "%s{", events->first ? "\n" : ",\n");
    va_start(arguments, format);
    const int body = vsnprintf(line + head, sizeof line - (size_t)head, format, arguments);
    va_end(arguments);
    assert(body > 0 && (size_t)(head + body) + 1 < sizeof line);
    line[head + body] = '}';
    events->first = false;
    write_text(events, line, (size_t)(head + body) + 1);
}

void trace_events_begin(struct trace_events *events, struct trace_output *output, char *err,
                        size_t err_len)
{
    static const char HEAD[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    assert(output != NULL);
    *events = (struct trace_events){output, true, false, err, err_len};
    write_text(events, HEAD, sizeof HEAD - 1);
}

int trace_events_end(struct trace_events *events, const char *metadata)
{
    static const char MIDDLE[] = "\n],\"otherData\":{", TAIL[] = "}}\n";
    write_text(events, MIDDLE, sizeof MIDDLE - 1);
    write_text(events, metadata, strlen(metadata));
    write_text(events, TAIL, sizeof TAIL - 1);
    return events->failed ? -1 : 0;
}

void trace_events_process(struct trace_events *events, uint32_t process, const char *name,
                          int64_t sort_index)
{
    assert(process > 0); /* Perfetto keeps 0 for an idle processor. */
    put(events,
        "\"ph\":\"M\",\"pid\":%" PRIu32
        ",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}",
        process, name);
    put(events,
        "\"ph\":\"M\",\"pid\":%" PRIu32
        ",\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRId64 "}",
        process, sort_index);
}

void trace_events_thread(struct trace_events *events, uint32_t process, uint32_t thread,
                         const char *name)
{
    assert(process > 0 && thread > 0);
    put(events,
        "\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
        ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}",
        process, thread, name);
    put(events,
        "\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
        ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}",
        process, thread, thread);
}

void trace_events_slice(struct trace_events *events, uint32_t process, uint32_t thread,
                        const char *name, const char *category, uint64_t start_ps, uint64_t end_ps,
                        const char *arguments)
{
    const uint64_t start_ns = start_ps / 1000, end_ns = end_ps / 1000;
    assert(start_ps <= end_ps);
    put(events,
        "\"ph\":\"X\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
        ",\"ts\":%s,\"dur\":%s,\"name\":\"%s\",\"cat\":\"%s\",\"args\":{%s}",
        process, thread, microseconds(start_ns).text, microseconds(end_ns - start_ns).text, name,
        category, arguments);
}

void trace_events_counter(struct trace_events *events, uint32_t process, const char *name,
                          const char *unit, uint64_t at_ps, double value)
{
    put(events,
        "\"ph\":\"C\",\"pid\":%" PRIu32
        ",\"tid\":0,\"ts\":%s,\"name\":\"%s %s\",\"args\":{\"%s\":%.3f}",
        process, microseconds(at_ps / 1000).text, name, unit, unit, value);
}

void trace_events_flow(struct trace_events *events, uint64_t id, const char *name,
                       const char *category, const struct trace_flow_end *from,
                       const struct trace_flow_end *to, const char *arguments)
{
    assert(from->at_ps <= to->at_ps);
    put(events,
        "\"ph\":\"s\",\"id\":%" PRIu64 ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
        ",\"ts\":%s,\"name\":\"%s\",\"cat\":\"%s\",\"args\":{%s}",
        id, from->process, from->thread, microseconds(from->at_ps / 1000).text, name, category,
        arguments);
    put(events,
        "\"ph\":\"f\",\"bp\":\"e\",\"id\":%" PRIu64 ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
        ",\"ts\":%s,\"name\":\"%s\",\"cat\":\"%s\",\"args\":{}",
        id, to->process, to->thread, microseconds(to->at_ps / 1000).text, name, category);
}
