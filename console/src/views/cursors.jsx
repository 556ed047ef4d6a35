export function Cursors() { return <h1>Cursors</h1>; }
