export function System() { return <h1>System</h1>; }
