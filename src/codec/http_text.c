/* http_text.c - see http_text.h. */
#include "codec/http_text.h"

#include <string.h>

#include "base/clock.h"
#include "codec/http_chars.h"

enum { LENGTH_DIGITS_MAX = 19 };

long ls_percent_decode(const char *bytes, size_t len, bool plus, char *out)
{
    size_t from = 0, to = 0;
    while (from < len) {
        char c = bytes[from++];
        if (c == '%') {
            if (len - from < 2 || !ls_char_is(bytes[from], LS_CHAR_HEX) || !ls_char_is(bytes[from + 1], LS_CHAR_HEX))
                return -1;
            c = (char)(ls_char_hex_value(bytes[from]) << 4 | ls_char_hex_value(bytes[from + 1]));
            from += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0') return -1;
        out[to++] = c;
    }
    return (long)to;
}

/* Split [from, to) at its first '='. false: no '='; the whole text is the name. */
static bool split_pair(const char *from, const char *to, ls_pair *out)
{
    const char *equals = memchr(from, '=', (size_t)(to - from));
    out->name = from;
    out->name_len = (size_t)((equals != NULL ? equals : to) - from);
    out->value = equals != NULL ? equals + 1 : to;
    out->value_len = (size_t)(to - out->value);
    return equals != NULL;
}

/* Return the next part up to `separator`, and advance *at past the separator. */
static const char *next_part(const char *bytes, size_t len, size_t *at, char separator, const char **to)
{
    const char *from = bytes + *at, *mark = memchr(from, separator, len - *at);
    *to = mark != NULL ? mark : bytes + len;
    *at = (size_t)(*to - bytes) + (mark != NULL);
    return from;
}

bool ls_query_next(const char *bytes, size_t len, size_t *at, ls_pair *out)
{
    while (*at < len) {
        const char *to, *from = next_part(bytes, len, at, '&', &to);
        if (from == to) continue;
        (void)split_pair(from, to, out);
        return true;
    }
    return false;
}

static void trim(const char **from, const char **to)
{
    while (*from < *to && (**from == ' ' || **from == '\t')) ++*from;
    while (*to > *from && ((*to)[-1] == ' ' || (*to)[-1] == '\t')) --*to;
}

bool ls_lines_next_received(const char *lines, size_t len, size_t *at, ls_pair *out)
{
    const char *const name = lines + *at, *const line = memchr(name, '\n', len - *at);
    if (line == NULL || line - name == 1) return false; /* the empty line */
    const char *const colon = memchr(name, ':', (size_t)(line - name)), *value = colon + 1, *end = line - 1;
    trim(&value, &end);
    *out = (ls_pair){
        .name = name, .value = value, .name_len = (size_t)(colon - name), .value_len = (size_t)(end - value)};
    *at = (size_t)(line + 1 - lines);
    return true;
}

bool ls_list_next(const char **at, const char *end, const char **from, const char **to)
{
    if (*at > end) return false;
    const char *comma = memchr(*at, ',', (size_t)(end - *at));
    *from = *at;
    *to = comma != NULL ? comma : end;
    *at = *to + 1; /* after the last element: end + 1 */
    trim(from, to);
    return true;
}

bool ls_list_has(const char *list, size_t len, const char *element, size_t element_len)
{
    const char *const end = list + len, *from, *to;
    while (ls_list_next(&list, end, &from, &to))
        if (ls_text_same(from, (size_t)(to - from), element, element_len)) return true;
    return false;
}

bool ls_length_parse(const char *bytes, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0 || len > LENGTH_DIGITS_MAX) return false;
    for (size_t i = 0; i < len; i++) {
        if (!ls_char_digit(bytes[i])) return false;
        value = value * 10 + (uint64_t)(bytes[i] - '0'); /* 10^19 - 1 < 2^64 */
    }
    if (value > INT64_MAX) return false;
    *out = value;
    return true;
}

bool ls_cookie_next(const char *bytes, size_t len, size_t *at, ls_pair *out)
{
    while (*at < len) {
        const char *to, *from = next_part(bytes, len, at, ';', &to), *name_end, *value;
        trim(&from, &to);
        if (!split_pair(from, to, out)) continue; /* without '=' it is not a cookie-pair */
        name_end = out->name + out->name_len;
        value = out->value;
        trim(&out->name, &name_end);
        trim(&value, &to);
        out->name_len = (size_t)(name_end - out->name);
        if (out->name_len == 0) continue;
        if (to - value >= 2 && value[0] == '"' && to[-1] == '"') {
            value++;
            to--;
        }
        out->value = value;
        out->value_len = (size_t)(to - value);
        return true;
    }
    return false;
}

static bool all_are(const char *bytes, size_t len, enum ls_char_class wanted)
{
    for (size_t i = 0; i < len; i++)
        if (!ls_char_is(bytes[i], wanted)) return false;
    return true;
}

bool ls_is_token(const char *bytes, size_t len)
{
    return len > 0 && all_are(bytes, len, LS_CHAR_TOKEN);
}

bool ls_is_field_value(const char *bytes, size_t len)
{
    return all_are(bytes, len, LS_CHAR_VALUE);
}

bool ls_text_same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len != b_len) return false;
    for (size_t i = 0; i < a_len; i++)
        if (a[i] != b[i] && ls_char_lower(a[i]) != ls_char_lower(b[i])) return false;
    return true;
}

/* RFC 9110 15, and other registered statuses in common use: RFC 2518, 2774, 5842, 6585, 7725, 8297, 8470. */
const char *ls_status_text(int status)
{
    static const char *const texts[6][52] = {
        [1] = {"Continue", "Switching Protocols", "Processing", "Early Hints"},
        [2] = {"OK", "Created", "Accepted", "Non-Authoritative Information", "No Content", "Reset Content",
               "Partial Content", "Multi-Status", "Already Reported", [26] = "IM Used"},
        [3] = {"Multiple Choices", "Moved Permanently", "Found", "See Other", "Not Modified", "Use Proxy",
               [7] = "Temporary Redirect", "Permanent Redirect"},
        [4] = {"Bad Request", "Unauthorized", "Payment Required", "Forbidden", "Not Found", "Method Not Allowed",
               "Not Acceptable", "Proxy Authentication Required", "Request Timeout", "Conflict", "Gone",
               "Length Required", "Precondition Failed", "Content Too Large", "URI Too Long",
               "Unsupported Media Type", "Range Not Satisfiable", "Expectation Failed", "I'm a teapot",
               [21] = "Misdirected Request", "Unprocessable Content", "Locked", "Failed Dependency", "Too Early",
               "Upgrade Required", [28] = "Precondition Required", "Too Many Requests",
               [31] = "Request Header Fields Too Large", [51] = "Unavailable For Legal Reasons"},
        [5] = {"Internal Server Error", "Not Implemented", "Bad Gateway", "Service Unavailable", "Gateway Timeout",
               "HTTP Version Not Supported", "Variant Also Negotiates", "Insufficient Storage", "Loop Detected",
               [11] = "Network Authentication Required"}};
    const char *text = status >= 100 && status < 600 && status % 100 < 52 ? texts[status / 100][status % 100] : NULL;
    return text != NULL ? text : "";
}

static void put_digits(char *out, unsigned value, unsigned digits)
{
    while (digits-- > 0) {
        out[digits] = (char)('0' + value % 10);
        value /= 10;
    }
}

void ls_http_date(int64_t wall_s, char out[LS_HTTP_DATE_BYTES])
{
    const ls_date date = ls_clock_date(wall_s);
    memcpy(out, "Thu, 01 Jan 1970 00:00:00 GMT", LS_HTTP_DATE_BYTES);
    memcpy(out, "SunMonTueWedThuFriSat" + (size_t)3 * date.weekday, 3);
    put_digits(out + 5, date.day, 2);
    memcpy(out + 8, ls_month_names + (size_t)3 * (date.month - 1), 3);
    put_digits(out + 12, date.year, 4);
    put_digits(out + 17, date.hour, 2);
    put_digits(out + 20, date.minute, 2);
    put_digits(out + 23, date.second, 2);
}

/* The text that is left to parse. */
typedef struct date_text {
    const char *at, *end;
} date_text;

static bool date_literal(date_text *text, const char *literal)
{
    const size_t len = strlen(literal);
    if ((size_t)(text->end - text->at) < len || memcmp(text->at, literal, len) != 0) return false;
    text->at += len;
    return true;
}

/* Exactly `count` digits; with `padded` the first may be a space. */
static bool date_digits(date_text *text, unsigned count, bool padded, unsigned *out)
{
    unsigned n = 0;
    if (text->end - text->at < (ptrdiff_t)count) return false;
    for (unsigned i = 0; i < count; i++) {
        const char c = text->at[i];
        if (padded && i == 0 && c == ' ') continue;
        if (!ls_char_digit(c)) return false;
        n = n * 10 + (unsigned)(c - '0');
    }
    text->at += count;
    *out = n;
    return true;
}

static bool date_month(date_text *text, unsigned *out)
{
    if (text->end - text->at < 3) return false;
    for (unsigned n = 0; n < 12; n++) {
        if (memcmp(text->at, ls_month_names + 3 * n, 3) != 0) continue;
        text->at += 3;
        *out = n + 1;
        return true;
    }
    return false;
}

static bool date_time(date_text *text, unsigned *out)
{
    unsigned hour, minute, second;
    if (!date_digits(text, 2, false, &hour) || !date_literal(text, ":") || !date_digits(text, 2, false, &minute) ||
        !date_literal(text, ":") || !date_digits(text, 2, false, &second))
        return false;
    *out = hour * 3600 + minute * 60 + second;
    return hour < 24 && minute < 60 && second <= 60;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar; the inverse of the calculation of ls_clock_date. */
static int64_t days_from_date(int64_t year, unsigned month, unsigned day)
{
    const int64_t y = month > 2 ? year : year - 1;
    const int64_t era = (y >= 0 ? y : y - 399) / 400;
    const int64_t year_of_era = y - era * 400;
    const int64_t day_of_year = (153 * (int64_t)(month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

static bool is_day(unsigned year, unsigned month, unsigned day)
{
    static const unsigned char days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day >= 1 && day <= days[month - 1] && (month != 2 || day < 29 || leap);
}

bool ls_http_date_parse(const char *bytes, size_t len, int64_t now_s, int64_t *out)
{
    static const char *const weekdays[] = {"Mon",      "Tue",    "Wed",      "Thu",     "Fri",
                                           "Sat",      "Sun",    "Monday",   "Tuesday", "Wednesday",
                                           "Thursday", "Friday", "Saturday", "Sunday"};
    date_text text = {bytes, bytes + len};
    unsigned weekday = 0, year, month, day, time;
    bool good = false, two_digits = false;
    size_t name = 0;
    while (name < len && ls_char_lower(bytes[name]) >= 'a' && ls_char_lower(bytes[name]) <= 'z') name++;
    while (weekday < 14 && (strlen(weekdays[weekday]) != name || memcmp(weekdays[weekday], bytes, name) != 0))
        weekday++;
    if (weekday == 14) return false;
    text.at += name;
    if (weekday >= 7) { /* rfc850-date */
        two_digits = true;
        good = date_literal(&text, ", ") && date_digits(&text, 2, false, &day) && date_literal(&text, "-") &&
               date_month(&text, &month) && date_literal(&text, "-") && date_digits(&text, 2, false, &year) &&
               date_literal(&text, " ") && date_time(&text, &time) && date_literal(&text, " GMT");
    } else if (date_literal(&text, ", ")) { /* IMF-fixdate */
        good = date_digits(&text, 2, false, &day) && date_literal(&text, " ") && date_month(&text, &month) &&
               date_literal(&text, " ") && date_digits(&text, 4, false, &year) && date_literal(&text, " ") &&
               date_time(&text, &time) && date_literal(&text, " GMT");
    } else { /* asctime-date */
        good = date_literal(&text, " ") && date_month(&text, &month) && date_literal(&text, " ") &&
               date_digits(&text, 2, true, &day) && date_literal(&text, " ") && date_time(&text, &time) &&
               date_literal(&text, " ") && date_digits(&text, 4, false, &year);
    }
    if (!good || text.at != text.end) return false;
    if (two_digits) {
        const unsigned latest = ls_clock_date(now_s).year + 50;
        year += latest - latest % 100;
        if (year > latest) year -= 100;
    }
    if (!is_day(year, month, day)) return false;
    *out = days_from_date(year, month, day) * 86400 + time;
    return true;
}
