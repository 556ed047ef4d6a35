// A rate in the size of a word. The last number stands beside it, so the line itself is not read out.
const WIDTH = 84;
const HEIGHT = 22;

export function Spark({ values, points = 60 }) {
  const shown = values.slice(-points);
  if (shown.length < 2) return <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true" />;
  const most = Math.max(...shown, 1e-9);
  const x = (index) => WIDTH - (shown.length - 1 - index) * (WIDTH / (points - 1));
  const y = (value) => HEIGHT - 2 - (value / most) * (HEIGHT - 4);
  const line = shown.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true" focusable="false">
      <polygon points={`${x(0).toFixed(1)},${HEIGHT} ${line} ${WIDTH},${HEIGHT}`} />
      <polyline points={line} />
    </svg>
  );
}
