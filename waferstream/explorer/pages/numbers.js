// Numbers as people read them.

const LENGTHS = [[1e12, "s"], [1e9, "ms"], [1e6, "µs"], [1e3, "ns"], [1, "ps"]];
const SIZES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

const digits = (number, count) => number.toLocaleString("en-US", { maximumSignificantDigits: count });
const whole = (number) => number.toLocaleString("en-US", { maximumFractionDigits: 0 });

/** A number of three digits: 1.38 M. */
function short(number) {
  const [size, name] = SIZES.find(([least]) => number >= least * 0.9995) ?? [1, ""];
  return name ? `${digits(number / size, 3)} ${name}` : digits(number, 3);
}

function time(ps) {
  const [unit, name] = LENGTHS.find(([least]) => ps >= least) ?? LENGTHS.at(-1);
  return [digits(ps / unit, 3), name];
}

const GIB = 2 ** 30;
const bytes = (number) => (number >= GIB ? `${digits(number / GIB, 3)} GiB` : `${digits(number / 2 ** 20, 3)} MiB`);
const percent = (share, count = 2) => `${digits(100 * share, share < 0.1 ? Math.max(1, count - 1) : count)}%`;

/** How far a factor is from one, in words. */
const within = (factor) => (factor < 2 ? `±${percent(factor - 1)}` : `a factor of ${digits(factor, 2)}`);
