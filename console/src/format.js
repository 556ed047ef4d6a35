// Numbers, times and sizes as people read them.
const grouped = new Intl.NumberFormat("en-US");

export function count(value) {
  return value === null || value === undefined ? "–" : grouped.format(value);
}

// For places where there is no room for all digits; the whole number is in the tooltip.
export function short(value) {
  const units = ["", "k", "M", "G", "T", "P", "E"];
  let number = Number(value);
  let unit = 0;
  while (Math.abs(number) >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? (Number.isInteger(number) ? 0 : 1) : Math.abs(number) < 10 ? 2 : Math.abs(number) < 100 ? 1 : 0;
  return number.toFixed(digits) + units[unit];
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let number = value;
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = ms / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(ms, now = Date.now()) {
  if (ms === null || ms === undefined) return "never";
  const passed = Math.max(now - ms, 0);
  return passed < 2000 ? "now" : `${duration(passed)} ago`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

export function clock(ms) {
  const date = new Date(ms);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function moment(ms) {
  const date = new Date(ms);
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${Number(number) === 1 ? one : many}`;
}

export function range(first, last) {
  return first === last ? `seq ${count(first)}` : `seqs ${count(first)} to ${count(last)}`;
}
